#include <algorithm>
#include <stdexcept>

#include "cuda/kernels/attention/attention.h"

namespace longhaul::cuda {

Past cached_past(const CacheBlocks& cache, int layer, const int32_t* entries) {
  static_assert(block_positions == 1 << 5);
  return {cache.layer(layer),     cache.value_offset(),    cache.head_stride(),
          cache.block_stride(), size_t(cache.head_dim), 5, entries};
}

Past chain_past(const float* keys_values, size_t ld_keys_values, int kv_heads, int head_dim, const int32_t* entries) {
  return {keys_values, size_t(kv_heads) * head_dim, size_t(head_dim), ld_keys_values, 0, 0, entries};
}

std::vector<AttentionTile> attention_tiles(std::span<const QuerySpan> spans, int group, int tile_rows) {
  std::vector<AttentionTile> tiles;
  for (const QuerySpan& span : spans) {
    const int rows = span.queries * group;
    for (int first = (rows - 1) / tile_rows * tile_rows; rows > 0 && first >= 0; first -= tile_rows)
      tiles.push_back({span.first_query * group + first, std::min(tile_rows, rows - first), span.past});
  }
  return tiles;
}

std::string attention_refusal(int heads, int kv_heads, int head_dim) {
  if (kv_heads < 1 || heads < kv_heads || heads % kv_heads != 0)
    return "the number of heads, " + std::to_string(heads) + ", is not a multiple of the number of KV heads, " + std::to_string(kv_heads);
  if (head_dim < 16 || head_dim > widest_attention_head || head_dim % 16 != 0)
    return "head_dim is " + std::to_string(head_dim) + "; attention on this device supports multiples of 16 up to " +
           std::to_string(widest_attention_head);
  return "";
}

void check_attention(const Attention& a) {
  const std::string refusal = attention_refusal(a.heads, a.kv_heads, a.head_dim);
  if (!refusal.empty()) throw std::invalid_argument("attention: " + refusal);
  if (a.tile_rows != few_tile_rows && a.tile_rows != many_tile_rows)
    throw std::invalid_argument("attention: tiles have " + std::to_string(few_tile_rows) + " or " + std::to_string(many_tile_rows) +
                                " rows, not " + std::to_string(a.tile_rows));
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (!aligned(a.qkv) || !aligned(a.past.keys) || a.ld_qkv % 4 != 0 || a.past.entry_stride % 4 != 0)
    throw std::invalid_argument("attention: rows of queries, keys and values must be 16-byte aligned");
}

}  // namespace longhaul::cuda
