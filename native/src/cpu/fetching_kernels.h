// Products that prefetch the data of the next work. Reading each sequence's keys and values is limited by the speed of memory, and the
// products of decoding are limited by arithmetic. Done at the same time, the two take no longer than one of them.
#pragma once

#include "cpu/gemm_kernels.h"
#include "ops/ops.h"

namespace longhaul::ops {
namespace {

constexpr int narrow_columns = narrow_vectors * lanes;

/// Distributes the pieces of a fetch list over the tiles of a product, so that all tiles fetch about equally much.
class Fetching {
 public:
  /// `steps` > 0: the steps of all tiles together.
  Fetching(const FetchList& wanted, size_t steps) : wanted_(wanted) {
    const size_t all = size_t(wanted.count) * wanted.size;
    step_ = int(all < steps * narrow_columns ? (all + steps - 1) / steps : narrow_columns);
  }

  /// Sets what a tile of `depth` steps fetches; leaves `ahead` unchanged when nothing is left.
  void next(int depth, Ahead& ahead) {
    if (chunk_ == wanted_.count) return;
    const size_t left = wanted_.size - at_, piece = size_t(step_) * depth;
    ahead.from = wanted_.chunks[chunk_] + at_;
    ahead.step = size_t(step_);
    // A short rest is fetched together with the last piece.
    if (left <= piece + piece / 4) {
      ahead.step = size_t(smaller(narrow_columns, (int(left) + depth - 1) / depth));
      at_ = 0;
      ++chunk_;
    } else {
      at_ += piece;
    }
  }

 private:
  const FetchList& wanted_;
  int step_;
  int chunk_ = 0;
  size_t at_ = 0;
};

// The first tile of a panel fetches the panel, as in every product; the other tiles find it in the cache. Uses narrow tiles: with wide
// tiles a product has fewer steps in which to fetch, and the speed of memory limits a decode step.
inline void fetching_panel_product(const float* a, size_t stride, const float* b, int depth, float* c, size_t ldc, int rows,
                                   bool accumulate, Fetching& fetching) {
  const float* own = b + prefetch_depth * panel_columns;
  for (int column = 0; column < panel_columns; column += narrow_columns) {
    int i = 0;
    for (int tiles = (rows + narrow_rows - 1) / narrow_rows; tiles > 0; --tiles) {
      const int height = (rows - i + tiles - 1) / tiles;
      Ahead ahead{own + column, panel_columns};
      if (tiles > 1) prefetch_tile(c + (i + height) * ldc + column, ldc, smaller(narrow_rows, rows - i - height), narrow_columns);
      if (i > 0) fetching.next(depth, ahead);
      tile_of<narrow_rows, narrow_vectors, narrow_vectors, Order::by_row>(height, a + i * stride, stride, {b + column}, ahead, depth,
                                                                          c + i * ldc + column, ldc, accumulate);
      i += height;
    }
  }
}

void matmul_fetching(const float* a, size_t lda, const Panels& b, int first, int last, float* c, size_t ldc, int m,
                     bool accumulate, const FetchList& wanted) {
  const int tiles = (m + narrow_rows - 1) / narrow_rows - 1, part = even_part(b.depth, depth_block);
  if (wanted.count == 0 || tiles < 1 || m > row_block) {
    matmul_panels(a, lda, b, first, last, c, ldc, m, accumulate);
    return;
  }
  Fetching fetching(wanted, size_t(last - first) * tiles * b.depth * (panel_columns / narrow_columns));
  for (int k = 0; k < b.depth; k += part)
    for (int p = first; p < last; ++p)
      into_columns(c + p * panel_columns, ldc, m, b.columns - p * panel_columns, accumulate || k > 0,
                   [&](float* to, size_t ld_to, bool add_to) {
                     fetching_panel_product(a + k, lda, b.panel(p) + size_t(k) * panel_columns, smaller(part, b.depth - k), to,
                                            ld_to, m, add_to, fetching);
                   });
}

}  // namespace
}  // namespace longhaul::ops
