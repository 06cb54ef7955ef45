#include "cuda/kernels/attention/attention.h"

#include <stdexcept>

#include "cuda/device/exact.h"
#include "cuda/kernels/attention/tile_products.cuh"

namespace longhaul::cuda {
namespace {

size_t shared_bytes(int rows, int head_dim) {
  return sizeof(float) * (size_t(rows) * head_dim + 2 * size_t(tile_keys) * (head_dim + 4) + size_t(rows) * tile_keys + 2 * size_t(rows));
}

/// Two walks over the keys: the greatest score; then exp, its sums over 16 lanes, and one chain over the keys for each output. Nothing is
/// rescaled, so the order of sums does not depend on tiles. (Among scores of −0 and +0, or with a NaN, `top` may be another one than the
/// CPU's: the sign of zero does not reach the outputs, and a NaN makes all of the row's outputs NaN.) Grid: (tiles, KV heads).
/// Faults: no barrier after 1, 3: keys arrive; before 2, 5: they are overwritten; before 4: probabilities, 6: sums are read.
template <int Threads, int Rows, int Items, int Fault>
__global__ void __launch_bounds__(Threads, 1) attend(Attention a, float scale) {
  constexpr int warps = Threads / 32, warp_rows = Rows / warps;
  DYNAMIC_SHARED(shared);
  const int hd = a.head_dim, group = a.heads / a.kv_heads, kv = int(blockIdx.y), lane = int(threadIdx.x) % 32,
            warp = int(threadIdx.x) / 32;
  const AttentionTile tile = a.tiles[blockIdx.x];
  const int last_place = a.query_places[(tile.first_row + tile.rows - 1) / group],
            least_place = a.query_places[tile.first_row / group];
  const size_t head_column = size_t(kv) * group * hd;
  float* queries = reinterpret_cast<float*>(shared);         // [Rows, hd]
  float* keys = queries + Rows * hd;                         // [32, padded(hd)]
  float* values = keys + tile_keys * padded(hd);             // [32, padded(hd)]
  float* probabilities = values + tile_keys * padded(hd);    // [Rows, 32]
  float* inverse_sums = probabilities + Rows * tile_keys;    // [Rows]
  int32_t* places = reinterpret_cast<int32_t*>(inverse_sums + Rows);  // [Rows]

  land_rows<Threads>(a.qkv + head_column, a.ld_qkv, a.query_rows, tile.first_row, tile.rows, group, hd, queries);
  land_places<Threads>(a.query_places, tile.first_row, tile.rows, group, Rows, places);
  float top[warp_rows], score[warp_rows];
  UNROLL
  for (int g = 0; g < warp_rows; ++g) top[g] = __uint_as_float(0xFF800000u);
  for (int first = 0; first <= last_place; first += tile_keys) {
    land_past<Threads>(a.past, tile.past, kv, first, smaller(tile_keys, last_place + 1 - first), hd, 0, keys);
    if (Fault != 1) __syncthreads();
    row_products<warp_rows, warps>(queries, keys + lane * padded(hd), hd, tile.rows, score);
    UNROLL
    for (int g = 0; g < warp_rows; ++g)
      if (first + lane <= places[warp + g * warps]) top[g] = top[g] > score[g] ? top[g] : score[g];
    if (Fault != 2) __syncthreads();
  }
  UNROLL
  for (int g = 0; g < warp_rows; ++g) top[g] = max32(top[g]);

  // Lane i < 16 adds up the probabilities of keys i, i + 16, i + 32, …
  float lane_sum[warp_rows], out[Items][item_rows];
  UNROLL
  for (int g = 0; g < warp_rows; ++g) lane_sum[g] = 0.0f;
  UNROLL
  for (int slot = 0; slot < Items; ++slot)
    UNROLL
    for (int e = 0; e < item_rows; ++e) out[slot][e] = 0.0f;
  for (int first = 0; first <= last_place; first += tile_keys) {
    const int here = smaller(tile_keys, last_place + 1 - first);
    land_past<Threads>(a.past, tile.past, kv, first, here, hd, 0, keys);
    land_past<Threads>(a.past, tile.past, kv, first, here, hd, a.past.value_offset, values);
    if (Fault != 3) __syncthreads();
    row_products<warp_rows, warps>(queries, keys + lane * padded(hd), hd, tile.rows, score);
    UNROLL
    for (int g = 0; g < warp_rows; ++g) {
      const int row = warp + g * warps;
      const float p = first + lane <= places[row] ? exponential((score[g] - top[g]) * scale) : 0.0f;
      probabilities[row * tile_keys + lane] = p;
      const float other = __shfl_xor_sync(full_warp, p, 16);
      lane_sum[g] += p;
      lane_sum[g] += other;
    }
    if (Fault != 4) __syncthreads();
    add_weighted_keys<Threads, Items>(probabilities, values, places, first, here, first + tile_keys - 1 <= least_place, tile.rows, hd,
                                      out);
    if (Fault != 5) __syncthreads();
  }
  UNROLL
  for (int g = 0; g < warp_rows; ++g) {
    const int row = warp + g * warps;
    const float total = sum16(lane_sum[g]);
    if (lane == 0 && row < tile.rows) {
      const int query = (tile.first_row + row) / group, head = (tile.first_row + row) % group;
      inverse_sums[row] = __fdiv_rn(1.0f, total);
      if (a.log_sums) a.log_sums[size_t(query) * a.heads + kv * group + head] = top[g] * scale + logarithm(total);
    }
  }
  if (Fault != 6) __syncthreads();
  UNROLL
  for (int slot = 0; slot < Items; ++slot) {
    const Item item = item_at<Threads>(slot, tile.rows, hd);
    UNROLL
    for (int e = 0; e < item_rows; ++e) {
      const int row = item.first_row + e, query = (tile.first_row + row) / group, head = (tile.first_row + row) % group;
      if (row < tile.rows)
        a.out[size_t(query) * a.heads * hd + head_column + size_t(head) * hd + item.column] =
            out[slot][e] * inverse_sums[row];
    }
  }
}

template <int Threads, int Rows, int Items, int Fault>
void launch_attend(const Attention& a, Stream stream) {
  launch(attend<Threads, Rows, Items, Fault>, dim3(unsigned(a.tile_count), unsigned(a.kv_heads)), dim3(Threads),
         shared_bytes(Rows, a.head_dim), stream, a, 1.0f / __builtin_sqrtf(float(a.head_dim)));
}

template <int Fault>
void attend_tiles(const Attention& a, Stream stream) {
  check_attention(a);
  if (a.tile_count == 0) return;
  const bool narrow = a.head_dim <= 128;
  if (a.tile_rows == few_tile_rows) return narrow ? launch_attend<128, 8, 1, Fault>(a, stream) : launch_attend<256, 8, 1, Fault>(a, stream);
  if (a.head_dim <= 32) return launch_attend<128, 32, 1, Fault>(a, stream);
  if (a.head_dim <= 64) return launch_attend<128, 32, 2, Fault>(a, stream);
  return narrow ? launch_attend<128, 32, 4, Fault>(a, stream) : launch_attend<256, 32, 4, Fault>(a, stream);
}

}  // namespace

void attention(const Attention& a, Stream stream) { attend_tiles<0>(a, stream); }

void testing::attention(const longhaul::cuda::Attention& a, Stream stream, int fault) {
  switch (fault) {
    case 0: return attend_tiles<0>(a, stream);
#ifndef __CUDACC__  // nvcc would compile ten times as long, and a GPU need not show that a barrier is missing.
    case 1: return attend_tiles<1>(a, stream);
    case 2: return attend_tiles<2>(a, stream);
    case 3: return attend_tiles<3>(a, stream);
    case 4: return attend_tiles<4>(a, stream);
    case 5: return attend_tiles<5>(a, stream);
    case 6: return attend_tiles<6>(a, stream);
#endif
    default: throw std::invalid_argument("attention has no fault " + std::to_string(fault));
  }
}

}  // namespace longhaul::cuda
