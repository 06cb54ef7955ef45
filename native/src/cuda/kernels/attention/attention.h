// Attention over cache blocks (sampling) and over the chains of a forest (training), with the bits of cpu/attention_kernels.h. A row stands
// for one query and one of the `group` heads that share a KV head. Rows whose queries see the same past are computed in tiles, so that they
// share each load of 32 keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda/kernels/attention/cache_blocks.h"

namespace longhaul::cuda {

/// The widest head that the attention kernels support.
inline constexpr int widest_attention_head = 256;

/// Rows of a tile: for sampling, where a past has one query, and for passes over many queries.
inline constexpr int few_tile_rows = 8, many_tile_rows = 32;

/// Consecutive queries that see the same past, in order of their places.
struct QuerySpan {
  int first_query, queries;
  int past;  // index of the past's first entry in `Past::entries`
};

/// Some rows of one span.
struct AttentionTile {
  int32_t first_row;  // query · group + head within the group
  int32_t rows;
  int32_t past;
};

/// Keys and values by position. An entry is a block of the cache or a row of a forest.
struct Past {
  const float* keys;       // of KV head 0 in entry 0; 16-byte aligned
  size_t value_offset;     // floats from a key to its value
  size_t head_stride;      // between KV heads
  size_t entry_stride;     // between entries
  size_t position_stride;  // between positions of an entry
  int entry_shift;         // log₂ of the positions of an entry: 5 or 0
  const int32_t* entries;  // the entries of each past in order of position, one past behind another
};

/// One layer of the cache. Entries are numbers of blocks.
Past cached_past(const CacheBlocks& cache, int layer, const int32_t* entries);

/// Rows [ld_keys_values] of keys, then values, of all KV heads. Entries are numbers of rows.
Past chain_past(const float* keys_values, size_t ld_keys_values, int kv_heads, int head_dim, const int32_t* entries);

struct Attention {
  const float* qkv;  // [.., ld_qkv]: queries of all heads first
  size_t ld_qkv;
  // [queries]: row in `qkv`; number of the last key that the query sees.
  const int32_t* query_rows;
  const int32_t* query_places;
  Past past;
  const AttentionTile* tiles;  // [tile_count]
  int tile_count;
  int tile_rows;               // few_tile_rows or many_tile_rows
  int heads;
  int kv_heads;
  int head_dim;
  float* out;                  // [queries, heads · head_dim]
  float* log_sums;             // [queries, heads]: log Σ exp of the scaled scores; null if no backward follows
};

/// Cuts spans into tiles. A span's tiles with the most keys come first, since blocks start in this order.
std::vector<AttentionTile> attention_tiles(std::span<const QuerySpan> spans, int group, int tile_rows);

/// The reason why the kernels cannot attend with these heads; empty if they can.
std::string attention_refusal(int heads, int kv_heads, int head_dim);

/// Throws std::invalid_argument for shapes or alignments that the kernels do not support.
void check_attention(const Attention& attention);

/// out = softmax(q · kᵀ / √head_dim) · v. Throws as check_attention does.
void attention(const Attention& attention, Stream stream);

namespace testing {

/// Leaves out barrier `fault`, 1 to `attention_faults`; 0: none.
void attention(const longhaul::cuda::Attention& attention, Stream stream, int fault);
inline constexpr int attention_faults = 6;

}  // namespace testing

}  // namespace longhaul::cuda
