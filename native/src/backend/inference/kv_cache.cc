#include "backend/inference/kv_cache.h"

#include <cstring>

#include "ops/ops.h"

namespace longhaul {

namespace {

/// Floats of one KV head in one layer of a block: keys, then values in panels of 32 columns.
size_t floats_per_head(int head_dim) {
  return size_t(block_positions) * (size_t(head_dim) + size_t(ops::panel_count(head_dim)) * ops::panel_columns);
}

}  // namespace

KvCache::KvCache(const Architecture& architecture, int block_capacity)
    : BlockCache(block_capacity),
      heads_(size_t(architecture.num_key_value_heads)),
      head_stride_(floats_per_head(architecture.head_dim)),
      block_stride_(block_bytes(architecture) / sizeof(float)) {
  storage_.resize(size_t(block_capacity) * block_stride_);
}

size_t KvCache::block_bytes(const Architecture& architecture) {
  return size_t(architecture.num_hidden_layers) * size_t(architecture.num_key_value_heads) * floats_per_head(architecture.head_dim) *
         sizeof(float);
}

void KvCache::copy_block(int from, int to) { std::memcpy(keys(to, 0, 0), keys(from, 0, 0), block_stride_ * sizeof(float)); }

}  // namespace longhaul
