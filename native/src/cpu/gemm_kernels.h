// fp32 matrix products. Every element of C is one chain of fused multiply-adds over k = 0..K−1, whatever the tile, the
// number of rows, or the instruction set; blocking over k continues the chain from C.
#pragma once

#include "cpu/scratch.h"
#include "cpu/vec16.h"
#include "ops/ops.h"

namespace longhaul::ops {
namespace {

#if defined(__AVX512F__)
constexpr int tile_rows = 12, tile_vectors = 2;
#elif defined(__AVX2__)
constexpr int tile_rows = 6, tile_vectors = 1;
#else
constexpr int tile_rows = 4, tile_vectors = 1;
#endif
constexpr int tile_columns = tile_vectors * lanes;
constexpr int depth_block = 256;
constexpr int row_block = 96;

// C[Rows, tile_columns] (+)= A · B; A[i,k] lies at a + i·row_stride + k·depth_stride, B rows are panel_columns wide.
template <int Rows>
[[gnu::always_inline]] inline void tile(const float* a, size_t row_stride, size_t depth_stride, const float* b, int depth,
                                        float* c, size_t ldc, bool accumulate) {
  Vec sum_of[Rows][tile_vectors];
  for (int i = 0; i < Rows; ++i)
    for (int v = 0; v < tile_vectors; ++v) sum_of[i][v] = accumulate ? load(c + i * ldc + v * lanes) : zeros();
  for (int k = 0; k < depth; ++k) {
    Vec column[tile_vectors];
    for (int v = 0; v < tile_vectors; ++v) column[v] = load(b + size_t(k) * panel_columns + v * lanes);
    for (int i = 0; i < Rows; ++i) {
      const Vec row = broadcast(a[i * row_stride + k * depth_stride]);
      for (int v = 0; v < tile_vectors; ++v) sum_of[i][v] = fma(row, column[v], sum_of[i][v]);
    }
  }
  for (int i = 0; i < Rows; ++i)
    for (int v = 0; v < tile_vectors; ++v) store(c + i * ldc + v * lanes, sum_of[i][v]);
}

template <int Rows>
inline void remaining_rows(int rows, const float* a, size_t row_stride, size_t depth_stride, const float* b, int depth,
                           float* c, size_t ldc, bool accumulate) {
  if constexpr (Rows > 0) {
    if (rows == Rows)
      tile<Rows>(a, row_stride, depth_stride, b, depth, c, ldc, accumulate);
    else
      remaining_rows<Rows - 1>(rows, a, row_stride, depth_stride, b, depth, c, ldc, accumulate);
  }
}

// C[rows, 32] (+)= A · one panel
inline void panel_product(const float* a, size_t row_stride, size_t depth_stride, const float* b, int depth, float* c,
                          size_t ldc, int rows, bool accumulate) {
  for (int column = 0; column < panel_columns; column += tile_columns) {
    int i = 0;
    for (; i + tile_rows <= rows; i += tile_rows)
      tile<tile_rows>(a + i * row_stride, row_stride, depth_stride, b + column, depth, c + i * ldc + column, ldc,
                      accumulate);
    remaining_rows<tile_rows - 1>(rows - i, a + i * row_stride, row_stride, depth_stride, b + column, depth,
                                  c + i * ldc + column, ldc, accumulate);
  }
}

// The last panel of a matrix whose width is no multiple of 32 must not write past it.
inline void narrow_panel_product(const float* a, size_t row_stride, size_t depth_stride, const float* b, int depth,
                                 float* c, size_t ldc, int rows, int columns, bool accumulate) {
  float wide[row_block * panel_columns];
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < panel_columns; ++j)
      wide[i * panel_columns + j] = accumulate && j < columns ? c[i * ldc + j] : 0.0f;
  panel_product(a, row_stride, depth_stride, b, depth, wide, panel_columns, rows, true);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) c[i * ldc + j] = wide[i * panel_columns + j];
}

// One block of rows and depth against all panels.
inline void block_product(const float* a, size_t row_stride, size_t depth_stride, const Panels& b, int first_depth,
                          int depth, float* c, size_t ldc, int rows, bool accumulate) {
  const int panels = (b.columns + panel_columns - 1) / panel_columns;
  for (int p = 0; p < panels; ++p) {
    const float* panel = b.panel(p) + size_t(first_depth) * panel_columns;
    const int columns = b.columns - p * panel_columns;
    if (columns >= panel_columns)
      panel_product(a, row_stride, depth_stride, panel, depth, c + p * panel_columns, ldc, rows, accumulate);
    else
      narrow_panel_product(a, row_stride, depth_stride, panel, depth, c + p * panel_columns, ldc, rows, columns,
                           accumulate);
  }
}

inline int smaller(int a, int b) { return a < b ? a : b; }
inline int larger(int a, int b) { return a > b ? a : b; }

void matmul(const float* a, size_t lda, const Panels& b, float* c, size_t ldc, int m, bool accumulate) {
  for (int i = 0; i < m; i += row_block)
    for (int k = 0; k < b.depth; k += depth_block)
      block_product(a + i * lda + k, lda, 1, b, k, smaller(depth_block, b.depth - k), c + i * ldc, ldc,
                    smaller(row_block, m - i), accumulate || k > 0);
}

void matmul_transposed(const float* a, size_t lda, const Panels& b, float* c, size_t ldc, int m) {
  float* block = scratch(Scratch::transposed, size_t(row_block) * depth_block);
  for (int i = 0; i < m; i += row_block) {
    const int rows = smaller(row_block, m - i);
    for (int k = 0; k < b.depth; k += depth_block) {
      const int depth = smaller(depth_block, b.depth - k);
      for (int d = 0; d < depth; ++d)
        __builtin_memcpy(block + size_t(d) * row_block, a + size_t(k + d) * lda + i, size_t(rows) * sizeof(float));
      block_product(block, 1, row_block, b, k, depth, c + size_t(i) * ldc, ldc, rows, true);
    }
  }
}

void pack_transposed_panels(const float* w, size_t ldw, Panels& out, int first, int last) {
  for (int p = first; p < last; ++p) {
    float* panel = out.values.data() + size_t(p) * out.depth * panel_columns;
    const int columns = smaller(panel_columns, out.columns - p * panel_columns);
    for (int j = 0; j < columns; ++j) {
      const float* row = w + size_t(p * panel_columns + j) * ldw;
      for (int k = 0; k < out.depth; ++k) panel[size_t(k) * panel_columns + j] = row[k];
    }
  }
}

void pack_panels(const float* x, size_t ldx, Panels& out, int first, int last) {
  for (int p = first; p < last; ++p) {
    float* panel = out.values.data() + size_t(p) * out.depth * panel_columns;
    const int columns = smaller(panel_columns, out.columns - p * panel_columns);
    for (int k = 0; k < out.depth; ++k) {
      const float* row = x + size_t(k) * ldx + p * panel_columns;
      if (columns == panel_columns) {
        store(panel, load(row));
        store(panel + lanes, load(row + lanes));
      } else {
        for (int j = 0; j < panel_columns; ++j) panel[j] = j < columns ? row[j] : 0.0f;
      }
      panel += panel_columns;
    }
  }
}

}  // namespace
}  // namespace longhaul::ops
