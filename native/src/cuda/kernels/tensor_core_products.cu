#include "cuda/kernels/tensor_core_products.h"

#include <stdexcept>
#include <string>

#include "cuda/device/device.h"
#include "cuda/kernels/product_layout.cuh"

namespace longhaul::cuda::bf16 {

namespace {

/// A block of threads computes Rows × Columns of the result; a warp computes WarpRows × WarpColumns of them.
template <int Rows, int Columns, int WarpRows, int WarpColumns>
struct Tile {
  static constexpr int rows = Rows, columns = Columns, warp_rows = WarpRows, warp_columns = WarpColumns;
  static constexpr int threads = (Rows / WarpRows) * (Columns / WarpColumns) * 32;
};

using Tile16 = Tile<16, 64, 16, 16>;
using Tile64 = Tile<64, 64, 32, 32>;
using Tile128 = Tile<128, 128, 64, 32>;

/// Products of a step along k, and steps whose operands are in shared memory.
constexpr int depth = 32, stages = 3;
/// Values that one copy moves.
constexpr int together = 8;

/// One operand of a step, as it lies in memory. Eights of a row change places by the row's number, so that the rows of a matrix that
/// `load_matrices` reads lie in different banks.
template <int Extent, bool ByDepth>
struct Operand {
  static constexpr int rows = ByDepth ? depth : Extent, eights = (ByDepth ? Extent : depth) / together;
  using Shared = uint4[stages][rows][eights];

  static __device__ __forceinline__ int place(int row, int eight) {
    constexpr int changing = eights < 8 ? eights : 8;
    return eight ^ (row * changing / 8 % changing);
  }

  /// Begins to copy values [first, first + Extent) × [k, k + depth); zero past `last` and past `all_k`.
  static __device__ __forceinline__ void copy(uint4 (&to)[rows][eights], const std::uint16_t* from, size_t ld, int first, int last, int k, int all_k,
                                 int threads) {
    const bool aligned = ld % together == 0 && size_t(from) % 16 == 0;
    const void* nowhere = reinterpret_cast<const void*>(size_t(from) / 16 * 16);
    for (int i = int(threadIdx.x); i < rows * eights; i += threads) {
      const int inner_row = i / eights, eight = i % eights;
      const int row = (ByDepth ? k : first) + inner_row, row_end = ByDepth ? all_k : last;
      const int column = (ByDepth ? first : k) + eight * together, column_end = ByDepth ? last : all_k;
      const std::uint16_t* p = from + size_t(row) * ld + column;
      uint4* at = &to[inner_row][place(inner_row, eight)];
      const bool there = row < row_end && column < column_end;
      if (!there || (aligned && column + together <= column_end)) {
        copy_async(at, there ? p : nowhere, there);
        continue;
      }
      unsigned words[4] = {};
      for (int e = 0; e < together; ++e)
        if (column + e < column_end) words[e / 2] |= unsigned(p[e]) << (e % 2 * 16);
      store(at, uint4{words[0], words[1], words[2], words[3]});
    }
  }

  /// Fragments of 16 of the extent from `at` on, over the sixteen k from `k` on: for A all four words; for B those of its first eight in words
  /// 0 and 2, of the others in 1 and 3.
  static __device__ __forceinline__ void fragment(unsigned (&r)[4], const uint4 (&from)[rows][eights], int at, int k) {
    const int lane = int(threadIdx.x) % 32;
    if (ByDepth) {
      // Matrices by k and extent: (0, 0), (0, 8), (8, 0), (8, 8).
      const int row = k + lane / 16 * 8 + lane % 8, eight = (at + lane / 8 % 2 * 8) / together;
      load_transposed_matrices(r, &from[row][place(row, eight)]);
    } else {
      const int row = at + lane % 16, eight = (k + lane / 16 * 8) / together;
      load_matrices(r, &from[row][place(row, eight)]);
    }
  }
};

DEVICE float value_of(std::uint16_t bits) { return __uint_as_float(unsigned(bits) << 16); }

template <Store store>
DEVICE void put(const Product& g, int row, int column, float sum) {
  if (row >= g.m || column >= g.n) return;
  if (store == Store::sum || store == Store::chain) {
    g.c[size_t(row) * g.ld_c + column] = sum;
  } else if (store == Store::added) {
    float& c = g.c[size_t(row) * g.ld_c + column];
    c = __fadd_rn(c, sum);
  } else {
    std::uint16_t& y = g.y[size_t(row) * g.ld_y + column];
    if (g.bias) sum = __fadd_rn(sum, value_of(g.bias[column]));
    if (store == Store::residual) sum = __fadd_rn(value_of(y), sum);
    y = std::uint16_t(bf16_pair(sum, 0.0f));
  }
}

template <class T, ProductLayout layout, Store store, int Fault>
__global__ void __launch_bounds__(T::threads) product_kernel(Product g) {
  using A = Operand<T::rows, a_by_depth<layout>>;
  using B = Operand<T::columns, b_by_depth<layout>>;
  constexpr int high = T::warp_rows / 16, wide = T::warp_columns / 8;
  DYNAMIC_SHARED(shared);
  auto& a_tiles = *reinterpret_cast<typename A::Shared*>(shared);
  auto& b_tiles = *reinterpret_cast<typename B::Shared*>(shared + sizeof(typename A::Shared));
  const int first_row = int(blockIdx.y) * T::rows, first_column = int(blockIdx.x) * T::columns;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, warps_wide = T::columns / T::warp_columns;
  const int warp_row = warp / warps_wide * T::warp_rows, warp_column = warp % warps_wide * T::warp_columns;
  const int steps = (g.k + depth - 1) / depth;
  const auto copy = [&](int step) {
    if (step < steps) {
      A::copy(a_tiles[step % stages], g.a, g.ld_a, first_row, g.m, step * depth, g.k, T::threads);
      B::copy(b_tiles[step % stages], g.b, g.ld_b, first_column, g.n, step * depth, g.k, T::threads);
    }
    commit_copies();
  };
  const auto row_of = [&](int i, int half) { return first_row + warp_row + i * 16 + lane / 4 + half * 8; };
  const auto column_of = [&](int j) { return first_column + warp_column + j * 8 + lane % 4 * 2; };

  float sum[high][wide][4];
  UNROLL
  for (int i = 0; i < high; ++i)
    UNROLL
    for (int j = 0; j < wide; ++j)
      UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = row_of(i, e / 2), column = column_of(j) + e % 2;
        sum[i][j][e] = store == Store::chain && row < g.m && column < g.n ? g.c[size_t(row) * g.ld_c + column] : 0.0f;
      }

  // (Zeros past K change no sum.)
  for (int step = 0; step < stages - 1; ++step) copy(step);
  for (int step = 0; step < steps; ++step) {
    if (Fault != 2) wait_for_copies<stages - 2>();
    if (Fault != 1) __syncthreads();
    copy(step + stages - 1);
    UNROLL
    for (int k = 0; k < depth; k += 16) {
      unsigned a[high][4], b[wide / 2][4];
      UNROLL
      for (int i = 0; i < high; ++i) A::fragment(a[i], a_tiles[step % stages], warp_row + i * 16, k);
      UNROLL
      for (int j = 0; j < wide / 2; ++j) B::fragment(b[j], b_tiles[step % stages], warp_column + j * 16, k);
      UNROLL
      for (int i = 0; i < high; ++i)
        UNROLL
        for (int j = 0; j < wide; ++j) {
          const unsigned right[2] = {b[j / 2][j % 2], b[j / 2][j % 2 + 2]};
          mma(sum[i][j], a[i], right);
        }
    }
  }
  wait_for_copies<0>();

  UNROLL
  for (int i = 0; i < high; ++i)
    UNROLL
    for (int j = 0; j < wide; ++j)
      UNROLL
      for (int e = 0; e < 4; ++e) put<store>(g, row_of(i, e / 2), column_of(j) + e % 2, sum[i][j][e]);
}

template <class T, ProductLayout layout, Store store, int Fault>
void launch_kernel(const Product& args, Stream stream) {
  constexpr size_t shared =
      sizeof(typename Operand<T::rows, a_by_depth<layout>>::Shared) + sizeof(typename Operand<T::columns, b_by_depth<layout>>::Shared);
  launch(product_kernel<T, layout, store, Fault>, dim3(blocks_of(args.n, T::columns), blocks_of(args.m, T::rows)), dim3(T::threads), shared,
         stream, args);
}

template <class T, int Fault>
void launch_tile(const Product& args, Stream stream) {
  with_layout(args.layout, [&](auto layout) {
    switch (args.store) {
      case Store::sum:
        return launch_kernel<T, layout.value, Store::sum, Fault>(args, stream);
      case Store::chain:
        return launch_kernel<T, layout.value, Store::chain, Fault>(args, stream);
      case Store::added:
        return launch_kernel<T, layout.value, Store::added, Fault>(args, stream);
      case Store::rounded:
        return launch_kernel<T, layout.value, Store::rounded, Fault>(args, stream);
      case Store::residual:
        return launch_kernel<T, layout.value, Store::residual, Fault>(args, stream);
    }
  });
}

template <int Fault>
void launch_product(const Product& args, Stream stream, ProductTile tile) {
  if (args.m <= 0 || args.n <= 0) return;
  switch (tile) {
    case ProductTile::rows_16:
      return launch_tile<Tile16, Fault>(args, stream);
    case ProductTile::rows_64:
      return launch_tile<Tile64, Fault>(args, stream);
    case ProductTile::rows_128:
      return launch_tile<Tile128, Fault>(args, stream);
  }
}

}  // namespace

ProductTile product_tile(int m, int n) {
  // A tile on each of an H100's 132 multiprocessors.
  constexpr unsigned most_busy = 132;
  if (m <= Tile16::rows) return ProductTile::rows_16;
  if (blocks_of(m, Tile128::rows) * blocks_of(n, Tile128::columns) >= most_busy) return ProductTile::rows_128;
  return ProductTile::rows_64;
}

void product(const Product& args, Stream stream) { launch_product<0>(args, stream, product_tile(args.m, args.n)); }

namespace testing {

void product(const Product& args, Stream stream, ProductTile tile, int fault) {
#ifndef __CUDACC__
  if (fault == 1) return launch_product<1>(args, stream, tile);
  if (fault == 2) return launch_product<2>(args, stream, tile);
#endif
  if (fault != 0) throw std::invalid_argument("product has no fault " + std::to_string(fault));
  launch_product<0>(args, stream, tile);
}

}  // namespace testing

}  // namespace longhaul::cuda::bf16
