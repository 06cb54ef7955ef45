// What the attention kernels share: 32 keys come to shared memory, each lane multiplies its key with the warp's rows, and threads add up
// weighted rows. Every result is one chain of fused multiply-adds in a fixed order. Rows in shared memory are padded by four floats, so
// that neighbouring lanes read different banks.
#pragma once

#include "cuda/device/device.h"
#include "cuda/kernels/attention/attention.h"

namespace longhaul::cuda {

/// Keys that are in shared memory at once; lane i of each warp has key i.
constexpr int tile_keys = 32;
/// Rows of which a thread adds up one column.
constexpr int item_rows = 8;

DEVICE int padded(int head_dim) { return head_dim + 4; }

DEVICE int smaller(int a, int b) { return a < b ? a : b; }

/// Key number `place` of a past.
DEVICE const float* key_at(const Past& past, int first_entry, int kv_head, int place) {
  const int entry = past.entries[first_entry + (place >> past.entry_shift)], position = place & ((1 << past.entry_shift) - 1);
  return past.keys + size_t(entry) * past.entry_stride + size_t(position) * past.position_stride + size_t(kv_head) * past.head_stride;
}

/// to [count, padded(head_dim)] = keys `place`, `place` + 1, …, or the values that lie `offset` floats behind them.
template <int Threads>
DEVICE void land_past(const Past& past, int first_entry, int kv_head, int place, int count, int head_dim, size_t offset, float* to) {
  const int quads = head_dim / 4;
  for (int i = int(threadIdx.x); i < count * quads; i += Threads) {
    const int j = i / quads, d = i % quads * 4;
    store(to + j * padded(head_dim) + d, load<float4>(key_at(past, first_entry, kv_head, place + j) + offset + d));
  }
}

/// to [rows, head_dim] = the heads of some rows: row r is head (first_row + r) % group of `from`, at line
/// lines[(first_row + r) / group], without lines at that number itself.
template <int Threads>
DEVICE void land_rows(const float* from, size_t ld, const int32_t* lines, int first_row, int rows, int group, int head_dim, float* to) {
  const int quads = head_dim / 4;
  for (int i = int(threadIdx.x); i < rows * quads; i += Threads) {
    const int r = i / quads, d = i % quads * 4, row = first_row + r;
    const float* x = from + size_t(lines ? lines[row / group] : row / group) * ld + size_t(row % group) * head_dim + d;
    store(to + r * head_dim + d, load<float4>(x));
  }
}

/// products[g] = x[row g of this warp] · key, a chain over the head's width. Warp w has rows w, w + warps, …
template <int WarpRows, int Warps>
DEVICE void row_products(const float* x, const float* key, int head_dim, int rows, float (&products)[WarpRows]) {
  const int warp = int(threadIdx.x) / 32, mine = (rows - warp + Warps - 1) / Warps;
  UNROLL
  for (int g = 0; g < WarpRows; ++g) products[g] = 0.0f;
  UNROLL_BY(2)
  for (int d = 0; d < head_dim; d += 4) {
    const float4 k = load<float4>(key + d);
    UNROLL
    for (int g = 0; g < WarpRows; ++g) {
      if (g >= mine) continue;
      const float4 q = load<float4>(x + (warp + g * Warps) * head_dim + d);
      products[g] = __fmaf_rn(q.x, k.x, products[g]);
      products[g] = __fmaf_rn(q.y, k.y, products[g]);
      products[g] = __fmaf_rn(q.z, k.z, products[g]);
      products[g] = __fmaf_rn(q.w, k.w, products[g]);
    }
  }
}

/// Eight rows of one column, as a thread adds them up.
struct Item {
  int first_row, column;
  bool exists;
};

template <int Threads>
DEVICE Item item_at(int slot, int rows, int head_dim) {
  const int index = slot * Threads + int(threadIdx.x), first = index / head_dim * item_rows;
  return {first, index % head_dim, first < rows};
}

/// sums[slot][e] continues the chain over keys of weights[row, key] · x[key, column] for row e of each item. Keys that a row does not see
/// take no part: row r sees keys 0 to places[r] − first_place. `all_seen` says that every row sees all 32.
template <int Threads, int Items>
DEVICE void add_weighted_keys(const float* weights, const float* x, const int32_t* places, int first_place, int keys, bool all_seen,
                              int rows, int head_dim, float (&sums)[Items][item_rows]) {
  UNROLL
  for (int slot = 0; slot < Items; ++slot) {
    const Item item = item_at<Threads>(slot, rows, head_dim);
    if (!item.exists) continue;
    const float* w = weights + item.first_row * tile_keys;
    const float* column = x + item.column;
    if (all_seen) {
      UNROLL_BY(1)
      for (int j = 0; j < tile_keys; j += 4, column += 4 * padded(head_dim)) {
        const float a = column[0], b = column[padded(head_dim)], c = column[2 * padded(head_dim)], d = column[3 * padded(head_dim)];
        UNROLL
        for (int e = 0; e < item_rows; ++e) {
          const float4 p = load<float4>(w + e * tile_keys + j);
          sums[slot][e] = __fmaf_rn(p.x, a, sums[slot][e]);
          sums[slot][e] = __fmaf_rn(p.y, b, sums[slot][e]);
          sums[slot][e] = __fmaf_rn(p.z, c, sums[slot][e]);
          sums[slot][e] = __fmaf_rn(p.w, d, sums[slot][e]);
        }
      }
    } else {
      UNROLL_BY(1)
      for (int j = 0; j < keys; ++j, column += padded(head_dim)) {
        UNROLL
        for (int e = 0; e < item_rows; ++e)
          if (first_place + j <= places[item.first_row + e]) sums[slot][e] = __fmaf_rn(w[e * tile_keys + j], *column, sums[slot][e]);
      }
    }
  }
}

/// The place of each row's query, −1 behind the last row.
template <int Threads>
DEVICE void land_places(const int32_t* query_places, int first_row, int rows, int group, int most_rows, int32_t* places) {
  for (int r = int(threadIdx.x); r < most_rows; r += Threads) places[r] = r < rows ? query_places[(first_row + r) / group] : -1;
}

}  // namespace longhaul::cuda
