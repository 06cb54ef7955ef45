#include "backend/inference/decode.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/inference/extension.h"

namespace longhaul {

namespace {

/// Floats of one KV head in one layer of a block: keys, then values in panels of 32 columns.
size_t floats_per_head(int head_dim) {
  return size_t(block_positions) * (size_t(head_dim) + size_t(ops::panel_count(head_dim)) * ops::panel_columns);
}

ExtensionRows lay_out(std::span<const Feed> feeds) {
  std::vector<int> order(feeds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::lexicographical_compare(feeds[a].blocks.begin(), feeds[a].blocks.end(), feeds[b].blocks.begin(),
                                        feeds[b].blocks.end());
  });
  ExtensionRows rows;
  std::vector<int> last_row(feeds.size());
  for (const int f : order) {
    const Feed& feed = feeds[f];
    for (size_t i = 0; i < feed.tokens.size(); ++i) {
      rows.tokens.push_back(feed.tokens[i]);
      rows.positions.push_back(feed.position + int(i));
      rows.block_tables.push_back(feed.blocks.data());
    }
    last_row[f] = rows.size() - 1;
    rows.longest = std::max(rows.longest, feed.position + int(feed.tokens.size()));
  }
  for (size_t f = 0; f < feeds.size(); ++f)
    if (feeds[f].want_logits) rows.wanted.push_back(last_row[f]);
  return rows;
}

}  // namespace

KvCache::KvCache(const Architecture& architecture, int block_capacity)
    : block_capacity_(block_capacity),
      layers_(architecture.num_hidden_layers),
      heads_(architecture.num_key_value_heads),
      head_stride_(floats_per_head(architecture.head_dim)) {
  if (block_capacity < 1)
    throw std::invalid_argument("KV cache: block_capacity is " + std::to_string(block_capacity) + "; it must be at least 1");
  storage_.resize(size_t(block_capacity) * block_stride());
}

size_t KvCache::block_bytes(const Architecture& architecture) {
  return size_t(architecture.num_hidden_layers) * architecture.num_key_value_heads * floats_per_head(architecture.head_dim) *
         sizeof(float);
}

size_t KvCache::block_stride() const { return size_t(layers_) * heads_ * head_stride_; }

float* KvCache::keys(int block, int layer, int head) {
  return storage_.data() + size_t(block) * block_stride() + (size_t(layer) * heads_ + head) * head_stride_;
}

void KvCache::copy_block(int from, int to) {
  std::memcpy(keys(to, 0, 0), keys(from, 0, 0), block_stride() * sizeof(float));
}

void extend(const Policy& policy, KvCache& cache, std::span<const Feed> feeds, float* logits, ThreadPool& pool, Split split) {
  validate(feeds, policy.architecture(), cache.block_capacity());
  if (feeds.empty()) return;
  Extension extension(policy, cache, lay_out(feeds), pool);
  if (split == Split::by_columns || (split == Split::as_fits && extension.better_by_columns())) {
    extension.run_by_columns(logits);
  } else if ((split == Split::in_turns || (split == Split::as_fits && extension.better_in_turns())) && extension.alone()) {
    extension.run_in_turns(logits);
  } else {
    extension.run_by_rows(logits);
  }
}

}  // namespace longhaul
