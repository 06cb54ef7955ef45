#include "cuda/kernels/products.h"

#include <stdexcept>
#include <string>

#include "cuda/device/device.h"
#include "cuda/kernels/product_layout.cuh"

namespace longhaul::cuda {

namespace {

/// A block of threads computes Rows × Columns of C in steps of `Depth` along k; a thread computes ThreadRows × ThreadColumns of them.
template <int Rows, int Columns, int Depth, int ThreadRows, int ThreadColumns>
struct Tile {
  static constexpr int rows = Rows, columns = Columns, depth = Depth, thread_rows = ThreadRows, thread_columns = ThreadColumns;
  static constexpr int threads = (Rows / ThreadRows) * (Columns / ThreadColumns);
};

using Tile4 = Tile<4, 32, 64, 1, 1>;
using Tile16 = Tile<16, 64, 32, 2, 4>;
using Tile64 = Tile<64, 64, 16, 4, 4>;
using Tile128 = Tile<128, 128, 16, 8, 8>;

/// Copies one operand, a tile [Extent, Depth] at a time, from memory to registers and from there to shared memory. A thread holds quads of
/// four values that are neighbours in memory.
template <int Extent, int Depth, int Threads, bool ByDepth>
struct Operand {
  static constexpr int quads = (Extent * Depth / 4 + Threads - 1) / Threads;
  static constexpr bool even = quads * 4 * Threads == Extent * Depth;
  static constexpr int row_quads = ByDepth ? Extent / 4 : Depth / 4;
  /// The padding keeps rows 16-byte aligned and spreads columns over the banks.
  using Shared = float[Depth][Extent + 4];

  float held[quads][4];

  /// Values [first, first + Extent) × [k, k + Depth); zero past `last` and past `all_k`.
  __device__ __forceinline__ void fetch(const float* from, size_t ld, int first, int last, int k, int all_k) {
    const bool aligned = ld % 4 == 0 && size_t(from) % 16 == 0;
    UNROLL
    for (int q = 0; q < quads; ++q) {
      const int quad = q * Threads + int(threadIdx.x), outer = quad / row_quads, inner = quad % row_quads * 4;
      const int row = (ByDepth ? k : first) + outer, row_end = ByDepth ? all_k : last;
      const int column = (ByDepth ? first : k) + inner, column_end = ByDepth ? last : all_k;
      const bool there = (even || quad < Extent * Depth / 4) && row < row_end;
      const float* p = from + size_t(row) * ld + column;
      if (there && aligned && column + 4 <= column_end) {
        const float4 v = load<float4>(p);
        held[q][0] = v.x, held[q][1] = v.y, held[q][2] = v.z, held[q][3] = v.w;
      } else {
        UNROLL
        for (int e = 0; e < 4; ++e) held[q][e] = there && column + e < column_end ? p[e] : 0.0f;
      }
    }
  }

  __device__ __forceinline__ void put(Shared& to) const {
    UNROLL
    for (int q = 0; q < quads; ++q) {
      const int quad = q * Threads + int(threadIdx.x), outer = quad / row_quads, inner = quad % row_quads * 4;
      if (!even && quad >= Extent * Depth / 4) continue;
      UNROLL
      for (int e = 0; e < 4; ++e) (ByDepth ? to[outer][inner + e] : to[inner + e][outer]) = held[q][e];
    }
  }
};

/// The place within a tile of a thread's i-th row or column. Up to four are neighbours; the next four lie a whole row of threads further,
/// so that the threads of a warp read neighbouring quads.
template <int Extent, int Own>
DEVICE int place_of(int thread, int i) {
  constexpr int together = Own < 4 ? Own : 4;
  return i / together * (Extent / Own * together) + thread * together + i % together;
}

template <class T, ProductLayout layout, int Fault>
__global__ void __launch_bounds__(T::threads) product_kernel(Product g) {
  using A = Operand<T::rows, T::depth, T::threads, a_by_depth<layout>>;
  using B = Operand<T::columns, T::depth, T::threads, b_by_depth<layout>>;
  SHARED(float, a_tiles, [2][T::depth][T::rows + 4]);
  SHARED(float, b_tiles, [2][T::depth][T::columns + 4]);
  const int first_row = int(blockIdx.y) * T::rows, first_column = int(blockIdx.x) * T::columns;
  const int thread_row = int(threadIdx.x) / (T::columns / T::thread_columns),
            thread_column = int(threadIdx.x) % (T::columns / T::thread_columns);
  A a;
  B b;

  float sum[T::thread_rows][T::thread_columns];
  UNROLL
  for (int i = 0; i < T::thread_rows; ++i)
    UNROLL
    for (int j = 0; j < T::thread_columns; ++j) {
      const int row = first_row + place_of<T::rows, T::thread_rows>(thread_row, i),
                column = first_column + place_of<T::columns, T::thread_columns>(thread_column, j);
      sum[i][j] = g.accumulate && row < g.m && column < g.n ? g.c[size_t(row) * g.ld_c + column] : 0.0f;
    }
  const auto step = [&](int buffer, int k) {
    float x[T::thread_rows], y[T::thread_columns];
    UNROLL
    for (int i = 0; i < T::thread_rows; ++i) x[i] = a_tiles[buffer][k][place_of<T::rows, T::thread_rows>(thread_row, i)];
    UNROLL
    for (int j = 0; j < T::thread_columns; ++j) y[j] = b_tiles[buffer][k][place_of<T::columns, T::thread_columns>(thread_column, j)];
    UNROLL
    for (int i = 0; i < T::thread_rows; ++i)
      UNROLL
      for (int j = 0; j < T::thread_columns; ++j) sum[i][j] = __fmaf_rn(x[i], y[j], sum[i][j]);
  };
  const auto fetch = [&](int k) {
    a.fetch(g.a, g.ld_a, first_row, g.m, k, g.k);
    b.fetch(g.b, g.ld_b, first_column, g.n, k, g.k);
  };
  const auto put = [&](int buffer) {
    a.put(a_tiles[buffer]);
    b.put(b_tiles[buffer]);
  };

  const int tiles = (g.k + T::depth - 1) / T::depth;
  fetch(0);
  put(0);
  if (Fault != 1) __syncthreads();
  for (int t = 0; t < tiles; ++t) {
    const int rest = g.k - t * T::depth;
    if (t + 1 < tiles) fetch((t + 1) * T::depth);
    if (rest >= T::depth) {
      UNROLL
      for (int k = 0; k < T::depth; ++k) step(t % 2, k);
    } else {
      // A step past K would add 0 · 0, which turns −0 into +0.
      for (int k = 0; k < rest; ++k) step(t % 2, k);
    }
    if (t + 1 < tiles) put((t + 1) % 2);
    if (Fault != 2) __syncthreads();
  }

  UNROLL
  for (int i = 0; i < T::thread_rows; ++i)
    UNROLL
    for (int j = 0; j < T::thread_columns; ++j) {
      const int row = first_row + place_of<T::rows, T::thread_rows>(thread_row, i),
                column = first_column + place_of<T::columns, T::thread_columns>(thread_column, j);
      if (row < g.m && column < g.n) g.c[size_t(row) * g.ld_c + column] = sum[i][j];
    }
}

template <class T, int Fault>
void launch_tile(const Product& args, Stream stream) {
  with_layout(args.layout, [&](auto layout) {
    launch(product_kernel<T, layout.value, Fault>, dim3(blocks_of(args.n, T::columns), blocks_of(args.m, T::rows)), dim3(T::threads), 0, stream,
           args);
  });
}

template <int Fault>
void launch_product(const Product& args, Stream stream, ProductTile tile) {
  if (args.m <= 0 || args.n <= 0) return;
  switch (tile) {
    case ProductTile::rows_4:
      return launch_tile<Tile4, Fault>(args, stream);
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
  // A tile on each of an H100's 132 multiprocessors: larger tiles read less, but only while none of them idles.
  constexpr unsigned most_busy = 132;
  if (m <= Tile4::rows) return ProductTile::rows_4;
  if (m <= Tile16::rows) return ProductTile::rows_16;
  if (m > Tile64::rows && blocks_of(m, Tile128::rows) * blocks_of(n, Tile128::columns) >= most_busy) return ProductTile::rows_128;
  if (blocks_of(m, Tile64::rows) * blocks_of(n, Tile64::columns) >= most_busy) return ProductTile::rows_64;
  return ProductTile::rows_16;
}

void product(const Product& args, Stream stream) { launch_product<0>(args, stream, product_tile(args.m, args.n)); }

namespace testing {

void product(const Product& args, Stream stream, ProductTile tile, int fault) {
#ifndef __CUDACC__  // nvcc would compile ten times as long, and a GPU need not show that a barrier is missing.
  if (fault == 1) return launch_product<1>(args, stream, tile);
  if (fault == 2) return launch_product<2>(args, stream, tile);
#endif
  if (fault != 0) throw std::invalid_argument("product has no fault " + std::to_string(fault));
  launch_product<0>(args, stream, tile);
}

}  // namespace testing

}  // namespace longhaul::cuda
