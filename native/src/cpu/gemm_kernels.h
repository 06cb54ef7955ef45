// fp32 matrix products. Every element of C is one chain of fused multiply-adds over k = 0..K−1, whatever the tile, the
// number of rows, or the instruction set; blocking over k continues the chain from C.
//
// A block of A's rows stays in the second-level cache while the panels of B pass by it one after another; the kernel reads a
// panel line by line (and asks for lines ahead of time) and keeps a tile of C in registers.
#pragma once

#include "cpu/scratch.h"
#include "cpu/transpose.h"
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
/// Most rows of C, and most of the chain, that are worked on at once: 192 · 384 floats of A are 288 KiB.
constexpr int row_block = 192, depth_block = 384;
/// The same for Aᵀ, whose C is a gradient that comes from memory: the longer the chain, the fewer its journeys. Fewer rows, so that
/// the next ones can be fetched while these are worked on.
constexpr int transposed_row_block = 96, transposed_depth_block = 512;
/// Up to so many panels Aᵀ is read as it lies: packing it would take as long as it saves. (Not where its rows would share a cache set.)
constexpr int most_direct_panels = 4;
/// How far ahead lines of B and of packed A are asked for: 32 steps are about 380 cycles of a full AVX-512 tile.
constexpr int prefetch_depth = 32, packed_prefetch_depth = 16;

inline int smaller(int a, int b) { return a < b ? a : b; }
inline int larger(int a, int b) { return a > b ? a : b; }

/// Parts of `whole`, none above `most`, as equal as multiples of 16 allow.
inline int even_part(int whole, int most) {
  if (whole <= most) return larger(whole, 1);
  const int parts = (whole + most - 1) / most;
  return ((whole + parts - 1) / parts + 15) / 16 * 16;
}

/// Where A[i,k] lies: a + i·stride + k, or a + k·stride + i.
enum class Order { by_row, by_depth };

/// What is fetched while a tile computes: as many lines as the tile is wide at each step of the chain, `step` floats on from the last.
struct Ahead {
  const float* from;
  size_t step = panel_columns;
};

// C[Rows, tile_columns] (+)= A · B; B rows are panel_columns wide.
template <int Rows, Order order>
[[gnu::always_inline]] inline void tile(const float* a, size_t stride, const float* b, Ahead ahead, int depth,
                                        float* c, size_t ldc, bool accumulate) {
  // Loops over the tile are unrolled before anything else is decided, and one branch stands around all sums instead of one for each:
  // otherwise the compiler sends them through the stack on their way in and out, which costs as much as eight steps of the chain.
  Vec sum_of[Rows][tile_vectors];
  if (accumulate) {
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < tile_vectors; ++v) sum_of[i][v] = load(c + i * ldc + v * lanes);
  } else {
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < tile_vectors; ++v) sum_of[i][v] = zeros();
  }
  for (int k = 0; k < depth; ++k) {
    Vec column[tile_vectors];
#pragma GCC unroll 2
    for (int v = 0; v < tile_vectors; ++v) {
      __builtin_prefetch(ahead.from + v * lanes);
      column[v] = load(b + v * lanes);
    }
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
      const Vec row = broadcast(order == Order::by_row ? a[i * stride] : a[i]);
#pragma GCC unroll 2
      for (int v = 0; v < tile_vectors; ++v) sum_of[i][v] = fma(row, column[v], sum_of[i][v]);
    }
    if (order == Order::by_depth) __builtin_prefetch(a + packed_prefetch_depth * stride);
    a += order == Order::by_row ? 1 : stride;
    b += panel_columns;
    ahead.from += ahead.step;
  }
#pragma GCC unroll 12
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < tile_vectors; ++v) store(c + i * ldc + v * lanes, sum_of[i][v]);
}

// One copy of each height, which the switch below jumps to. Heights above the instruction set's are never asked for.
template <int Rows, Order order>
[[gnu::noinline]] void tile_function(const float* a, size_t stride, const float* b, Ahead ahead, int depth, float* c,
                                     size_t ldc, bool accumulate) {
  tile<Rows, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
}

template <int Rows>
constexpr int possible_height = Rows < tile_rows ? Rows : tile_rows;

// rows in [1, tile_rows]
template <Order order>
inline void tile_of(int rows, const float* a, size_t stride, const float* b, Ahead ahead, int depth, float* c,
                    size_t ldc, bool accumulate) {
  switch (rows) {
    case 1: return tile_function<possible_height<1>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
    case 2: return tile_function<possible_height<2>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
    case 3: return tile_function<possible_height<3>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
    case 4: return tile_function<possible_height<4>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
    case 5: return tile_function<possible_height<5>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
    case 6: return tile_function<possible_height<6>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
    case 7: return tile_function<possible_height<7>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
    case 8: return tile_function<possible_height<8>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
    case 9: return tile_function<possible_height<9>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
    case 10: return tile_function<possible_height<10>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
    case 11: return tile_function<possible_height<11>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
    default: return tile_function<possible_height<12>, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
  }
}

/// Asks for the tile of C that comes next.
[[gnu::always_inline]] inline void prefetch_tile(const float* c, size_t ldc, int rows) {
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < tile_vectors; ++v) __builtin_prefetch(c + i * ldc + v * lanes, 1);
}

// C[rows, 32] (+)= A · one panel, in tiles of nearly equal height: a short one would wait for its own chains.
template <Order order>
inline void panel_product(const float* a, size_t stride, const float* b, int depth, float* c, size_t ldc, int rows,
                          bool accumulate, const float* ahead = nullptr) {
  if (!ahead) ahead = b + prefetch_depth * panel_columns;
  const size_t next_row = order == Order::by_row ? stride : 1;
  for (int column = 0; column < panel_columns; column += tile_columns) {
    int i = 0;
    for (int tiles = (rows + tile_rows - 1) / tile_rows; tiles > 0; --tiles) {
      const int height = (rows - i + tiles - 1) / tiles;
      if (tiles > 1) prefetch_tile(c + (i + height) * ldc + column, ldc, smaller(tile_rows, rows - i - height));
      tile_of<order>(height, a + i * next_row, stride, b + column, {ahead + column}, depth, c + i * ldc + column, ldc, accumulate);
      i += height;
    }
  }
}

// The same with A as `pack_tiles` leaves it.
inline void packed_panel_product(const float* a, const float* b, int depth, float* c, size_t ldc, int rows,
                                 bool accumulate) {
  for (int column = 0; column < panel_columns; column += tile_columns)
    for (int i = 0; i < rows; i += tile_rows) {
      const int rest = rows - i - tile_rows;
      if (rest > 0) prefetch_tile(c + (i + tile_rows) * ldc + column, ldc, smaller(tile_rows, rest));
      tile_of<Order::by_depth>(smaller(tile_rows, rows - i), a + size_t(i) * depth, tile_rows, b + column,
                               {b + prefetch_depth * panel_columns + column}, depth, c + i * ldc + column, ldc, accumulate);
    }
}

// Calls product(c, ldc, accumulate) for a panel of which `columns` exist: the last one of a matrix whose width is no multiple of 32
// must not write past it.
template <class Product>
inline void into_columns(float* c, size_t ldc, int rows, int columns, bool accumulate, Product&& product) {
  if (columns >= panel_columns) {
    product(c, ldc, accumulate);
    return;
  }
  float wide[row_block * panel_columns];
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < panel_columns; ++j)
      wide[i * panel_columns + j] = accumulate && j < columns ? c[i * ldc + j] : 0.0f;
  product(wide, size_t(panel_columns), true);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) c[i * ldc + j] = wide[i * panel_columns + j];
}

void matmul_panels(const float* a, size_t lda, const Panels& b, int first, int last, float* c, size_t ldc, int m,
                   bool accumulate) {
  const int part = even_part(b.depth, depth_block);
  for (int i = 0; i < m; i += row_block) {
    const int rows = smaller(row_block, m - i);
    for (int k = 0; k < b.depth; k += part) {
      const int depth = smaller(part, b.depth - k);
      for (int p = first; p < last; ++p)
        into_columns(c + size_t(i) * ldc + p * panel_columns, ldc, rows, b.columns - p * panel_columns, accumulate || k > 0,
                     [&](float* to, size_t ld_to, bool add_to) {
                       panel_product<Order::by_row>(a + size_t(i) * lda + k, lda, b.panel(p) + size_t(k) * panel_columns,
                                                    depth, to, ld_to, rows, add_to);
                     });
    }
  }
}

void matmul(const float* a, size_t lda, const Panels& b, float* c, size_t ldc, int m, bool accumulate) {
  matmul_panels(a, lda, b, 0, panel_count(b.columns), c, ldc, m, accumulate);
}

// A[depth, rows] as tiles one behind another, each [depth, tile_rows]: what one step of the kernel broadcasts lies side by side.
inline void pack_tiles(const float* a, size_t lda, int rows, int depth, float* out) {
  // So many tiles side by side: neighbouring columns share lines, but more tiles would share cache sets.
  constexpr int together = 4 * tile_rows;
  for (int i = 0; i < rows; i += together) {
    const int here = smaller(together, rows - i);
    for (int k = 0; k < depth; ++k) {
      const float* row = a + size_t(k) * lda + i;
      float* to = out + size_t(i) * depth + size_t(k) * tile_rows;
      int t = 0;
      for (; t + tile_rows <= here; t += tile_rows, to += size_t(depth) * tile_rows)
        __builtin_memcpy(to, row + t, tile_rows * sizeof(float));
      for (int j = 0; t + j < here; ++j) to[j] = row[t + j];
    }
  }
}

/// Asks for a share of A[depth, rows], so that its lines are near when they are packed: rows far apart are fetched one by one, and
/// waiting for them takes as long as a tenth of the product.
inline void prefetch_share(const float* a, size_t lda, int rows, int depth, int share, int shares) {
  constexpr int line = 64 / int(sizeof(float));
  for (int k = depth * share / shares; k < depth * (share + 1) / shares; ++k)
    for (int i = 0; i < rows; i += line) __builtin_prefetch(a + size_t(k) * lda + i, 0, 2);
}

void matmul_transposed(const float* a, size_t lda, const Panels& b, float* c, size_t ldc, int m) {
  const int part = even_part(b.depth, transposed_depth_block), panels = panel_count(b.columns);
  const bool direct = panels <= most_direct_panels && lda % 512 != 0;
  float* packed = scratch(Scratch::transposed, size_t(transposed_row_block) * part);
  for (int k = 0; k < b.depth; k += part) {
    const int depth = smaller(part, b.depth - k);
    for (int i = 0; i < m; i += transposed_row_block) {
      const int rows = smaller(transposed_row_block, m - i), next = i + rows, next_rows = smaller(transposed_row_block, m - next);
      const float* block = a + size_t(k) * lda;
      if (!direct) pack_tiles(block + i, lda, rows, depth, packed);
      for (int p = 0; p < panels; ++p) {
        if (next_rows > 0) prefetch_share(block + next, lda, next_rows, depth, p, panels);
        into_columns(c + size_t(i) * ldc + p * panel_columns, ldc, rows, b.columns - p * panel_columns, true,
                     [&](float* to, size_t ld_to, bool add_to) {
                       const float* panel = b.panel(p) + size_t(k) * panel_columns;
                       if (direct)
                         panel_product<Order::by_depth>(block + i, lda, panel, depth, to, ld_to, rows, add_to);
                       else
                         packed_panel_product(packed, panel, depth, to, ld_to, rows, add_to);
                     });
      }
    }
  }
}

void pack_transposed_panels(const float* w, size_t ldw, Panels& out, int first, int last) {
  for (int p = first; p < last; ++p) {
    const int columns = smaller(panel_columns, out.columns - p * panel_columns);
    const float* rows[panel_columns];
    for (int j = 0; j < columns; ++j) rows[j] = w + size_t(p * panel_columns + j) * ldw;
    rows_to_panel(rows, columns, out.depth, out.values.data() + size_t(p) * out.depth * panel_columns);
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
