// fp32 matrix products. Every element of C is one chain of fused multiply-adds over k = 0..K−1, independent of the tile, the number of
// rows, and the instruction set; blocking over k continues the chain from C.
//
// A block of A's rows stays in the second-level cache while the panels of B pass by it one after another. The kernel reads a panel line by
// line, prefetches later lines, and keeps a tile of C in registers.
#pragma once

#include "cpu/scratch.h"
#include "cpu/transpose.h"
#include "cpu/vec16.h"
#include "ops/ops.h"

namespace longhaul::ops {
namespace {

// Tiles of C that fit the registers. A wide tile reads two neighbouring panels. For the same number of multiply-adds, a step takes 10 loads
// with six rows and four vectors, but 14 with twelve rows and two vectors. That matters where two threads share a core.
#if defined(__AVX512F__)
constexpr int narrow_rows = 12, narrow_vectors = 2, wide_rows = 6, wide_vectors = 4;
#elif defined(__AVX2__)
constexpr int narrow_rows = 6, narrow_vectors = 1, wide_rows = 6, wide_vectors = 1;
#else
constexpr int narrow_rows = 4, narrow_vectors = 1, wide_rows = 4, wide_vectors = 1;
#endif
/// Rows of A that `pack_tiles` puts side by side.
constexpr int packed_rows = narrow_rows;
constexpr bool has_wide_tiles = wide_vectors * lanes > panel_columns;
constexpr int line_floats = 64 / int(sizeof(float));
/// The most rows of C, and the longest part of the chain, processed at once: 192 · 384 floats of A are 288 KiB.
constexpr int row_block = 192, depth_block = 384;
/// The same limits for Aᵀ, where C is a gradient in memory: with a longer chain, C is read and written less often. The block has fewer
/// rows, so that the next block can be prefetched during the work on this one.
constexpr int transposed_row_block = 96, transposed_depth_block = 512;
/// Up to this many panels, Aᵀ is read in place: packing it would take as long as it saves. (It is packed all the same if its rows would
/// share a cache set.)
constexpr int most_direct_panels = 4;
/// Prefetch distance for B and for packed A, in steps: 32 steps are about 380 cycles of a full AVX-512 tile.
constexpr int prefetch_depth = 32, packed_prefetch_depth = 16;

inline int smaller(int a, int b) { return a < b ? a : b; }
inline int larger(int a, int b) { return a > b ? a : b; }

/// Size of the parts that `whole` is cut into: at most `most`, and as equal as multiples of 16 allow.
inline int even_part(int whole, int most) {
  if (whole <= most) return larger(whole, 1);
  const int parts = (whole + most - 1) / most;
  return ((whole + parts - 1) / parts + 15) / 16 * 16;
}

/// Place of A[i,k]: a + i·stride + k, or a + k·stride + i.
enum class Order { by_row, by_depth };

/// Lines to prefetch while a tile computes: one or more at each step of the chain; each step moves on by `step` floats.
struct Ahead {
  const float* from;
  size_t step;
  /// Where the third and later lines are, if there are more than two.
  const float* second = nullptr;
};

/// A right-hand side of one panel, or of two panels that lie `next_panel` floats apart.
struct Columns {
  const float* panel;
  size_t next_panel = 0;
};

// C[Rows, 16 · Vectors] (+)= A · B
template <int Rows, int Vectors, int AheadLines, Order order>
[[gnu::always_inline]] inline void tile(const float* a, size_t stride, Columns b, Ahead ahead, int depth, float* c, size_t ldc,
                                        bool accumulate) {
  // Loops over the tile are unrolled early, and a single branch covers all sums instead of one branch for each sum. Otherwise the compiler
  // spills the sums to the stack on their way in and out, which costs as much as eight steps of the chain.
  Vec sum_of[Rows][Vectors];
  if (accumulate) {
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum_of[i][v] = load(c + i * ldc + v * lanes);
  } else {
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum_of[i][v] = zeros();
  }
  const float* first = b.panel;
  const float* second = b.panel + b.next_panel;
  for (int k = 0; k < depth; ++k) {
    Vec column[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) column[v] = load(v < 2 ? first + v * lanes : second + (v - 2) * lanes);
#pragma GCC unroll 4
    for (int l = 0; l < AheadLines; ++l)
      __builtin_prefetch(l < 2 ? ahead.from + l * line_floats : ahead.second + (l - 2) * line_floats);
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
      const Vec row = broadcast(order == Order::by_row ? a[i * stride] : a[i]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum_of[i][v] = fma(row, column[v], sum_of[i][v]);
    }
    if (order == Order::by_depth) __builtin_prefetch(a + packed_prefetch_depth * stride);
    a += order == Order::by_row ? 1 : stride;
    first += panel_columns;
    second += panel_columns;
    ahead.from += ahead.step;
    if (AheadLines > 2) ahead.second += ahead.step;
  }
#pragma GCC unroll 12
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(c + i * ldc + v * lanes, sum_of[i][v]);
}

// One copy for each tile height; the switch below jumps to it.
template <int Rows, int Vectors, int AheadLines, Order order>
[[gnu::noinline]] void tile_function(const float* a, size_t stride, Columns b, Ahead ahead, int depth, float* c, size_t ldc,
                                     bool accumulate) {
  tile<Rows, Vectors, AheadLines, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
}

/// rows in [1, Most]
template <int Most, int Vectors, int AheadLines, Order order>
inline void tile_of(int rows, const float* a, size_t stride, Columns b, Ahead ahead, int depth, float* c, size_t ldc,
                    bool accumulate) {
  if constexpr (Most > 1)
    if (rows < Most) return tile_of<Most - 1, Vectors, AheadLines, order>(rows, a, stride, b, ahead, depth, c, ldc, accumulate);
  tile_function<Most, Vectors, AheadLines, order>(a, stride, b, ahead, depth, c, ldc, accumulate);
}

/// Prefetches the next tile of C.
[[gnu::always_inline]] inline void prefetch_tile(const float* c, size_t ldc, int rows, int columns) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; j += line_floats) __builtin_prefetch(c + i * ldc + j, 1);
}

/// Rows of A in place, cut into tiles of nearly equal height: in a very short tile, each multiply-add would wait for the one before it.
template <Order order_of>
struct Rows {
  static constexpr Order order = order_of;
  const float* a;
  size_t stride;

  const float* from(int i) const { return order == Order::by_row ? a + i * stride : a + i; }

  /// Calls tile(first, rows) for each tile.
  template <class Tile>
  [[gnu::always_inline]] void each_tile(int rows, int most, Tile&& tile) const {
    int i = 0;
    for (int tiles = (rows + most - 1) / most; tiles > 0; --tiles) {
      const int height = (rows - i + tiles - 1) / tiles;
      tile(i, height);
      i += height;
    }
  }
};

/// Rows of A in the layout that `pack_tiles` writes.
struct PackedRows {
  static constexpr Order order = Order::by_depth;
  static constexpr size_t stride = packed_rows;
  const float* a;
  int depth;

  const float* from(int i) const { return a + size_t(i / packed_rows) * packed_rows * depth + i % packed_rows; }

  template <class Tile>
  [[gnu::always_inline]] void each_tile(int rows, int most, Tile&& tile) const {
    for (int i = 0; i < rows; i += most) tile(i, smaller(most, rows - i));
  }
};

// C[rows, 32] (+)= A · one panel. Prefetches `ahead`, the panel that is read next. If `ahead` is null, prefetches this panel shortly before
// reading it.
template <class A>
[[gnu::always_inline]] inline void narrow_product(A a, const float* b, int depth, float* c, size_t ldc, int rows, bool accumulate,
                                                  const float* ahead = nullptr) {
  if (!ahead) ahead = b + prefetch_depth * panel_columns;
  constexpr int width = narrow_vectors * lanes;
  for (int column = 0; column < panel_columns; column += width)
    a.each_tile(rows, narrow_rows, [&](int i, int height) {
      const int next = i + height;
      prefetch_tile(c + next * ldc + column, ldc, smaller(narrow_rows, rows - next), width);
      tile_of<narrow_rows, narrow_vectors, narrow_vectors, A::order>(height, a.from(i), a.stride, {b + column},
                                                                  {ahead + column, panel_columns}, depth, c + i * ldc + column, ldc,
                                                                  accumulate);
    });
}

template <Order order>
inline void panel_product(const float* a, size_t stride, const float* b, int depth, float* c, size_t ldc, int rows,
                          bool accumulate, const float* ahead = nullptr) {
  narrow_product(Rows<order>{a, stride}, b, depth, c, ldc, rows, accumulate, ahead);
}

/// The data that the tiles of a product prefetch, one tile after another: the two panels that are read next, half a panel at a time.
class NextPanels {
 public:
  NextPanels() = default;
  NextPanels(const float* first, const float* second) : panels_{first, second} {}

  /// Returns `otherwise` if nothing is left.
  Ahead take(int depth, Ahead otherwise) {
    if (taken_ == halves || !panels_[0]) return otherwise;
    const int half = taken_++;
    return {panels_[half / 2] + size_t(half % 2) * depth * line_floats, line_floats};
  }

 private:
  static constexpr int halves = 4;
  const float* panels_[2] = {};
  int taken_ = 0;
};

// C[rows, 64] (+)= A · two panels. The first tile prefetches these panels unless they are in the cache already (`near`); the other tiles
// prefetch what `next` returns.
template <class A>
[[gnu::always_inline]] inline void wide_product(A a, Columns b, bool near, NextPanels next, int depth, float* c, size_t ldc, int rows,
                                                bool accumulate) {
  a.each_tile(rows, wide_rows, [&](int i, int height) {
    const int below = i + height;
    prefetch_tile(c + below * ldc, ldc, smaller(wide_rows, rows - below), wide_vectors * lanes);
    if (i == 0 && !near) {
      const float* own = b.panel + prefetch_depth * panel_columns;
      tile_of<wide_rows, wide_vectors, wide_vectors, A::order>(height, a.from(i), a.stride, b, {own, panel_columns, own + b.next_panel},
                                                            depth, c + i * ldc, ldc, accumulate);
      return;
    }
    const Ahead ahead = next.take(depth, {b.panel, 0});
    tile_of<wide_rows, wide_vectors, 1, A::order>(height, a.from(i), a.stride, b, ahead, depth, c + i * ldc, ldc, accumulate);
  });
}

// Calls product(c, ldc, accumulate) for a panel with `columns` valid columns. The last panel of a matrix goes through a copy, since the
// matrix's width may not be a multiple of 32 and a product writes whole panels.
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

/// The default work between two panels of a product.
struct Nothing {
  void operator()(int, int) const {}
};

// C[rows, panels first..last) (+)= A · B for steps [k, k + depth) of the chain. Before each panel, calls between(panels done, all panels).
template <class A, class Between = Nothing>
[[gnu::always_inline]] inline void block_product(A a, const Panels& b, int k, int depth, int first, int last, float* c, size_t ldc,
                                                 int rows, bool accumulate, Between&& between = {}) {
  const auto at = [&](int p) { return b.panel(p) + size_t(k) * panel_columns; };
  const int tiles = (rows + wide_rows - 1) / wide_rows, whole = smaller(last, b.columns / panel_columns);
  int p = first;
  bool near = false;
  for (; has_wide_tiles && p + 2 <= whole; p += 2) {
    between(p - first, last - first);
    const NextPanels next = p + 4 <= whole ? NextPanels(at(p + 2), at(p + 3)) : NextPanels();
    wide_product(a, {at(p), size_t(b.depth) * panel_columns}, near, next, depth, c + p * panel_columns, ldc, rows, accumulate);
    // True if the tiles have prefetched all four halves. A first tile that prefetches its own panels takes no half.
    near = tiles >= (near ? 4 : 5);
  }
  for (; p < last; ++p) {
    between(p - first, last - first);
    into_columns(c + p * panel_columns, ldc, rows, b.columns - p * panel_columns, accumulate,
                 [&](float* to, size_t ld_to, bool add_to) { narrow_product(a, at(p), depth, to, ld_to, rows, add_to); });
  }
}

void matmul_panels(const float* a, size_t lda, const Panels& b, int first, int last, float* c, size_t ldc, int m,
                   bool accumulate) {
  const int part = even_part(b.depth, depth_block);
  for (int i = 0; i < m; i += row_block) {
    const int rows = smaller(row_block, m - i);
    for (int k = 0; k < b.depth; k += part)
      block_product(Rows<Order::by_row>{a + size_t(i) * lda + k, lda}, b, k, smaller(part, b.depth - k), first, last,
                    c + size_t(i) * ldc, ldc, rows, accumulate || k > 0);
  }
}

void matmul(const float* a, size_t lda, const Panels& b, float* c, size_t ldc, int m, bool accumulate) {
  matmul_panels(a, lda, b, 0, panel_count(b.columns), c, ldc, m, accumulate);
}

// A[depth, rows] as consecutive tiles, each [depth, packed_rows]: the values that one step of the kernel broadcasts lie side by side.
inline void pack_tiles(const float* a, size_t lda, int rows, int depth, float* out) {
  // Columns of A that are packed at once: neighbouring columns share cache lines, but more tiles would share cache sets.
  constexpr int together = 4 * packed_rows;
  for (int i = 0; i < rows; i += together) {
    const int here = smaller(together, rows - i);
    for (int k = 0; k < depth; ++k) {
      const float* row = a + size_t(k) * lda + i;
      float* to = out + size_t(i) * depth + size_t(k) * packed_rows;
      int t = 0;
      for (; t + packed_rows <= here; t += packed_rows, to += size_t(depth) * packed_rows)
        __builtin_memcpy(to, row + t, packed_rows * sizeof(float));
      for (int j = 0; t + j < here; ++j) to[j] = row[t + j];
    }
  }
}

/// Prefetches rows `first` to `last` of A[depth, rows], so that they are in the cache when they are packed: rows far apart are fetched one
/// by one, and waiting for them takes as long as a tenth of the product.
inline void prefetch_rows(const float* a, size_t lda, int rows, int first, int last) {
  for (int k = first; k < last; ++k)
    for (int i = 0; i < rows; i += line_floats) __builtin_prefetch(a + size_t(k) * lda + i, 0, 2);
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
      float* to = c + size_t(i) * ldc;
      int fetched = 0;
      const auto fetch_next = [&](int done, int of_all) {
        if (next_rows <= 0) return;
        const int until = depth * smaller(done + 2, of_all) / of_all;
        prefetch_rows(block + next, lda, next_rows, fetched, until);
        fetched = until;
      };
      if (direct) {
        block_product(Rows<Order::by_depth>{block + i, lda}, b, k, depth, 0, panels, to, ldc, rows, true, fetch_next);
      } else {
        pack_tiles(block + i, lda, rows, depth, packed);
        block_product(PackedRows{packed, depth}, b, k, depth, 0, panels, to, ldc, rows, true, fetch_next);
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
