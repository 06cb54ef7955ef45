#include "cuda/kernels/attention/attention_backward.h"

#include <stdexcept>

#include "cuda/device/exact.h"
#include "cuda/kernels/attention/tile_products.cuh"

namespace longhaul::cuda {
namespace {

constexpr int tile_rows = many_tile_rows;
/// Neighbouring threads that add up a dot product.
constexpr int lanes = 16;

/// Shared memory of a block of threads: `attention_shared_bytes`.
struct TileMemory {
  float *queries, *d_out;       // [tile_rows, head_dim]
  float *keys, *values;         // [32, padded(head_dim)]
  float *weights, *d_scores;    // [tile_rows, 32]: probabilities; gradients of unscaled scores
  float *log_sums, *pulls;      // [tile_rows]; pulls are Σ out · d_out
  int32_t* places;              // [tile_rows]

  __device__ TileMemory(unsigned char* shared, int head_dim)
      : queries(reinterpret_cast<float*>(shared)),
        d_out(queries + tile_rows * head_dim),
        keys(d_out + tile_rows * head_dim),
        values(keys + tile_keys * padded(head_dim)),
        weights(values + tile_keys * padded(head_dim)),
        d_scores(weights + tile_rows * tile_keys),
        log_sums(d_scores + tile_rows * tile_keys),
        pulls(log_sums + tile_rows),
        places(reinterpret_cast<int32_t*>(pulls + tile_rows)) {}
};

/// Where `log_sums` and `pulls` have a row's value.
DEVICE size_t head_of_row(const Attention& a, int kv, int row) {
  const int group = a.heads / a.kv_heads;
  return size_t(row / group) * a.heads + kv * group + row % group;
}

/// Queries, gradients of outputs, places and log-sums of some rows come to shared memory.
template <int Threads>
DEVICE void land_gradient_rows(const AttentionBackward& b, int kv, int first_row, int rows, const TileMemory& memory) {
  const Attention& a = b.forward;
  const int group = a.heads / a.kv_heads, hd = a.head_dim;
  const size_t head_column = size_t(kv) * group * hd;
  land_rows<Threads>(a.qkv + head_column, a.ld_qkv, a.query_rows, first_row, rows, group, hd, memory.queries);
  land_rows<Threads>(b.d_out + head_column, size_t(a.heads) * hd, nullptr, first_row, rows, group, hd, memory.d_out);
  land_places<Threads>(a.query_places, first_row, rows, group, tile_rows, memory.places);
  for (int row = int(threadIdx.x); row < rows; row += Threads) memory.log_sums[row] = a.log_sums[head_of_row(a, kv, first_row + row)];
}

/// Probabilities and gradients of scores of the rows and the lane's key, 0 where a row does not see it. The lane's key has number `place`.
template <int Threads>
DEVICE void softmax_gradients(int head_dim, int rows, int place, float scale, const TileMemory& memory) {
  constexpr int warps = Threads / 32, warp_rows = tile_rows / warps;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  float score[warp_rows], d_probability[warp_rows];
  row_products<warp_rows, warps>(memory.queries, memory.keys + lane * padded(head_dim), head_dim, rows, score);
  row_products<warp_rows, warps>(memory.d_out, memory.values + lane * padded(head_dim), head_dim, rows, d_probability);
  UNROLL
  for (int g = 0; g < warp_rows; ++g) {
    const int row = warp + g * warps;
    float p = 0.0f, d = 0.0f;
    if (row < rows && place <= memory.places[row]) {
      p = exponential(score[g] * scale - memory.log_sums[row]);
      d = p * scale * (d_probability[g] - memory.pulls[row]);
    }
    memory.weights[row * tile_keys + lane] = p;
    memory.d_scores[row * tile_keys + lane] = d;
  }
}

/// d_queries += a chain over the keys; pulls = Σ out · d_out over sixteen lanes. Grid: (tiles, KV heads).
/// Faults: no barrier after 1: rows arrive, 2: keys arrive; before 3: gradients of scores are read, 4: keys are overwritten.
template <int Threads, int Items, int Fault>
__global__ void __launch_bounds__(Threads, 1) query_gradients(AttentionBackward b, float scale) {
  DYNAMIC_SHARED(shared);
  const Attention& a = b.forward;
  const int hd = a.head_dim, group = a.heads / a.kv_heads, kv = int(blockIdx.y), lane = int(threadIdx.x) % 32;
  const TileMemory memory(shared, hd);
  const AttentionTile tile = a.tiles[blockIdx.x];
  const int last_place = a.query_places[(tile.first_row + tile.rows - 1) / group],
            least_place = a.query_places[tile.first_row / group];

  land_gradient_rows<Threads>(b, kv, tile.first_row, tile.rows, memory);
  if (Fault != 1) __syncthreads();
  UNROLL
  for (int first = 0; first < tile_rows; first += Threads / lanes) {
    const int row = first + int(threadIdx.x) / lanes, i = int(threadIdx.x) % lanes;
    float pull = 0.0f;
    if (row < tile.rows) {
      const float* out = a.out + head_of_row(a, kv, tile.first_row + row) * hd;
      for (int d = i; d < hd; d += lanes) pull = __fmaf_rn(out[d], memory.d_out[row * hd + d], pull);
    }
    pull = sum16(pull);
    if (row < tile.rows && i == 0) {
      memory.pulls[row] = pull;
      b.pulls[head_of_row(a, kv, tile.first_row + row)] = pull;
    }
  }

  float sums[Items][item_rows];
  UNROLL
  for (int slot = 0; slot < Items; ++slot)
    UNROLL
    for (int e = 0; e < item_rows; ++e) sums[slot][e] = 0.0f;
  for (int first = 0; first <= last_place; first += tile_keys) {
    const int here = smaller(tile_keys, last_place + 1 - first);
    land_past<Threads>(a.past, tile.past, kv, first, here, hd, 0, memory.keys);
    land_past<Threads>(a.past, tile.past, kv, first, here, hd, a.past.value_offset, memory.values);
    if (Fault != 2) __syncthreads();
    softmax_gradients<Threads>(hd, tile.rows, first + lane, scale, memory);
    if (Fault != 3) __syncthreads();
    add_weighted_keys<Threads, Items>(memory.d_scores, memory.keys, memory.places, first, here, first + tile_keys - 1 <= least_place,
                                      tile.rows, hd, sums);
    if (Fault != 4) __syncthreads();
  }
  UNROLL
  for (int slot = 0; slot < Items; ++slot) {
    const Item item = item_at<Threads>(slot, tile.rows, hd);
    UNROLL
    for (int e = 0; e < item_rows; ++e) {
      const int row = tile.first_row + item.first_row + e;
      if (item.first_row + e >= tile.rows) continue;
      float* to = b.d_queries + size_t(a.query_rows[row / group]) * a.ld_qkv + size_t(kv * group + row % group) * hd + item.column;
      *to = *to + sums[slot][e];
    }
  }
}

/// sums[slot][e] continues the chain over rows of weights[row, key] · x[row, column] for key e of each item (see `Item`). A row takes part
/// if it sees the key; `all_seen` says that every row sees every key.
template <int Threads, int Items>
DEVICE void add_weighted_rows(const float* weights, const float* x, const int32_t* places, int first_place, bool all_seen, int rows,
                              int head_dim, float (&sums)[Items][item_rows]) {
  UNROLL
  for (int slot = 0; slot < Items; ++slot) {
    const Item item = item_at<Threads>(slot, tile_keys, head_dim);
    if (!item.exists) continue;
    const float* w = weights + item.first_row;
    const float* column = x + item.column;
    UNROLL_BY(2)
    for (int row = 0; row < rows; ++row, w += tile_keys, column += head_dim) {
      const float4 low = load<float4>(w), high = load<float4>(w + 4);
      const float of_key[item_rows] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      const int seen = all_seen ? item_rows : places[row] - first_place - item.first_row + 1;
      UNROLL
      for (int e = 0; e < item_rows; ++e)
        if (e < seen) sums[slot][e] = __fmaf_rn(of_key[e], *column, sums[slot][e]);
    }
  }
}

/// to[key, column] += sums, for `keys` keys that lie `ld` floats apart.
template <int Threads, int Items>
DEVICE void add_to_keys(const float (&sums)[Items][item_rows], int keys, int head_dim, float* to, size_t ld) {
  UNROLL
  for (int slot = 0; slot < Items; ++slot) {
    const Item item = item_at<Threads>(slot, tile_keys, head_dim);
    float* at = to + size_t(item.first_row) * ld + item.column;
    UNROLL
    for (int e = 0; e < item_rows; ++e, at += ld)
      if (item.first_row + e < keys) *at = *at + sums[slot][e];
  }
}

/// d_keys_values += one sum for each reader, in order. Grid: (key tiles, KV heads).
/// Faults: no barrier after 5: rows arrive; before 6: weights are read, 7: rows are overwritten.
template <int Threads, int Items, int Fault>
__global__ void __launch_bounds__(Threads, 1) key_gradients(AttentionBackward b, float scale) {
  DYNAMIC_SHARED(shared);
  const Attention& a = b.forward;
  const int hd = a.head_dim, group = a.heads / a.kv_heads, kv = int(blockIdx.y), lane = int(threadIdx.x) % 32;
  const TileMemory memory(shared, hd);
  const KeyTile tile = b.key_tiles[blockIdx.x];
  const size_t ld = a.past.entry_stride, offset = size_t(tile.first_row) * ld + size_t(kv) * a.past.head_stride;
  for (int i = int(threadIdx.x); i < tile.rows * hd; i += Threads) {
    const int j = i / hd, d = i % hd;
    const float* key = a.past.keys + offset + size_t(j) * ld + d;
    memory.keys[j * padded(hd) + d] = key[0];
    memory.values[j * padded(hd) + d] = key[a.past.value_offset];
  }
  float d_key[Items][item_rows], d_value[Items][item_rows];
  for (int r = 0; r < tile.readers; ++r) {
    const KeyReader reader = b.readers[tile.first_reader + r];
    UNROLL
    for (int slot = 0; slot < Items; ++slot)
      UNROLL
      for (int e = 0; e < item_rows; ++e) d_key[slot][e] = d_value[slot][e] = 0.0f;
    const int end = (reader.first_query + reader.queries) * group, last_place = a.query_places[reader.first_query + reader.queries - 1];
    for (int first_row = reader.first_query * group; first_row < end; first_row += tile_rows) {
      const int rows = smaller(tile_rows, end - first_row);
      if (a.query_places[(first_row + rows - 1) / group] < tile.first_place) continue;
      land_gradient_rows<Threads>(b, kv, first_row, rows, memory);
      for (int row = int(threadIdx.x); row < rows; row += Threads) memory.pulls[row] = b.pulls[head_of_row(a, kv, first_row + row)];
      if (Fault != 5) __syncthreads();
      softmax_gradients<Threads>(hd, rows, tile.first_place + lane, scale, memory);
      if (Fault != 6) __syncthreads();
      const bool all_seen = tile.first_place + tile_keys - 1 <= a.query_places[first_row / group];
      add_weighted_rows<Threads, Items>(memory.d_scores, memory.queries, memory.places, tile.first_place, all_seen, rows, hd, d_key);
      add_weighted_rows<Threads, Items>(memory.weights, memory.d_out, memory.places, tile.first_place, all_seen, rows, hd, d_value);
      if (Fault != 7) __syncthreads();
    }
    const int touched = smaller(tile.rows, last_place + 1 - tile.first_place);
    add_to_keys<Threads, Items>(d_key, touched, hd, b.d_keys_values + offset, ld);
    add_to_keys<Threads, Items>(d_value, touched, hd, b.d_keys_values + offset + a.past.value_offset, ld);
  }
}

template <int Threads, int Items, int Fault>
void launch_gradients(const AttentionBackward& b, Stream stream) {
  const Attention& a = b.forward;
  const size_t bytes = attention_shared_bytes(a.head_dim);
  const float scale = 1.0f / __builtin_sqrtf(float(a.head_dim));
  const dim3 threads(Threads), tiles(unsigned(a.tile_count), unsigned(a.kv_heads)),
      key_tiles(unsigned(b.key_tile_count), unsigned(a.kv_heads));
  constexpr int query_fault = Fault <= 4 ? Fault : 0, key_fault = Fault > 4 ? Fault : 0;
  launch(query_gradients<Threads, Items, query_fault>, tiles, threads, bytes, stream, b, scale);
  launch(key_gradients<Threads, Items, key_fault>, key_tiles, threads, bytes, stream, b, scale);
}

template <int Fault>
void compute_gradients(const AttentionBackward& b, Stream stream) {
  const Attention& a = b.forward;
  check_attention(a);
  if (a.past.entry_shift != 0 || a.tile_rows != tile_rows)
    throw std::invalid_argument("attention_backward: it needs chains of rows, and tiles of " + std::to_string(tile_rows) + " rows");
  if (!a.log_sums || reinterpret_cast<uintptr_t>(b.d_out) % 16 != 0)
    throw std::invalid_argument("attention_backward: it needs log-sums, and gradients of outputs that are 16-byte aligned");
  if (a.tile_count == 0) return;
  if (a.head_dim <= 32) return launch_gradients<128, 1, Fault>(b, stream);
  if (a.head_dim <= 64) return launch_gradients<128, 2, Fault>(b, stream);
  if (a.head_dim <= 128) return launch_gradients<128, 4, Fault>(b, stream);
  launch_gradients<256, 4, Fault>(b, stream);
}

}  // namespace

void attention_backward(const AttentionBackward& b, Stream stream) { compute_gradients<0>(b, stream); }

void testing::attention_backward(const AttentionBackward& b, Stream stream, int fault) {
  switch (fault) {
    case 0: return compute_gradients<0>(b, stream);
#ifndef __CUDACC__  // nvcc would compile ten times as long, and a GPU need not show that a barrier is missing.
    case 1: return compute_gradients<1>(b, stream);
    case 2: return compute_gradients<2>(b, stream);
    case 3: return compute_gradients<3>(b, stream);
    case 4: return compute_gradients<4>(b, stream);
    case 5: return compute_gradients<5>(b, stream);
    case 6: return compute_gradients<6>(b, stream);
    case 7: return compute_gradients<7>(b, stream);
#endif
    default: throw std::invalid_argument("attention_backward has no fault " + std::to_string(fault));
  }
}

}  // namespace longhaul::cuda
