#include "model/decode.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace longhaul {

namespace {

size_t head_size(const Architecture& architecture) {
  return size_t(2) * architecture.head_dim * KvCache::block_positions;
}

/// The rows of a call, feeds with a common prefix side by side so that attention can batch them over it.
struct Rows {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<const int32_t*> block_tables;
  /// Rows whose logits are wanted, in feed order.
  std::vector<int> wanted;
  int longest = 0;

  int size() const { return int(tokens.size()); }
};

void check(const Feed& feed, size_t index, const Architecture& architecture, const KvCache& cache) {
  const auto refuse = [index](const std::string& what) {
    throw std::invalid_argument("feed " + std::to_string(index) + ": " + what);
  };
  const size_t end = size_t(std::max(feed.position, 0)) + feed.tokens.size();
  if (feed.tokens.empty()) refuse("has no tokens");
  if (feed.position < 0) refuse("starts at position " + std::to_string(feed.position));
  if (end > size_t(architecture.max_position_embeddings))
    refuse("ends at position " + std::to_string(end) + ", past max_position_embeddings, " +
           std::to_string(architecture.max_position_embeddings));
  if (feed.blocks.size() * KvCache::block_positions < end)
    refuse(std::to_string(feed.blocks.size()) + " blocks do not cover " + std::to_string(end) + " positions");
  for (const int32_t token : feed.tokens)
    if (token < 0 || token >= architecture.vocab_size)
      refuse("token " + std::to_string(token) + " is not in the vocabulary of " + std::to_string(architecture.vocab_size));
  const size_t used = (end + KvCache::block_positions - 1) / KvCache::block_positions;
  for (const int32_t block : feed.blocks.first(used))
    if (block < 0 || block >= cache.block_capacity()) refuse("block " + std::to_string(block) + " does not exist");
}

Rows lay_out(std::span<const Feed> feeds) {
  std::vector<int> order(feeds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::lexicographical_compare(feeds[a].blocks.begin(), feeds[a].blocks.end(), feeds[b].blocks.begin(),
                                        feeds[b].blocks.end());
  });
  Rows rows;
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

/// Rows of one unit of work: enough units for all threads, few enough rows that a unit's scores stay in the cache.
int tile_rows(int rows, int threads, int longest, int queries_per_key_value) {
  constexpr int kernel_rows = 12, most = 96, score_budget = 192 * 1024;
  int tile = (rows + threads - 1) / threads;
  if (tile > kernel_rows) tile = (tile + kernel_rows - 1) / kernel_rows * kernel_rows;
  const int fitting = score_budget / (longest * queries_per_key_value);
  return std::clamp(std::min(tile, std::max(fitting, kernel_rows)), 1, most);
}

class Extension {
 public:
  Extension(const Policy& policy, KvCache& cache, const Rows& rows)
      : policy_(policy), architecture_(policy.architecture()), op_(ops::table()), cache_(cache), rows_(rows) {
    // Kept between calls: a decode step is too short to map fresh pages.
    static thread_local AlignedBuffer hidden, qkv;
    hidden_ = hidden.scratch(size_t(rows.size()) * architecture_.hidden_size);
    qkv_ = qkv.scratch(size_t(rows.size()) * architecture_.qkv_width());
  }

  void run(float* logits, ThreadPool& pool) {
    const int layers = architecture_.num_hidden_layers, n = rows_.size();
    const int tile = tile_rows(n, pool.threads(), rows_.longest, architecture_.queries_per_key_value());
    const size_t tiles = size_t(n + tile - 1) / tile;
    const auto each_tile = [&](auto&& work) {
      pool.parallel_for(tiles, [&](size_t t) { work(int(t) * tile, std::min(tile, n - int(t) * tile)); });
    };
    each_tile([&](int first, int count) {
      embed(first, count);
      project(0, first, count);
    });
    // Every row's keys of a layer are written before any row of the call attends to them.
    for (int layer = 0; layer < layers; ++layer)
      each_tile([&](int first, int count) {
        attend_and_transform(layer, first, count);
        if (layer + 1 < layers) project(layer + 1, first, count);
      });
    const int wanted = int(rows_.wanted.size());
    if (wanted == 0) return;
    const int head_tile = tile_rows(wanted, pool.threads(), 1, 1);
    pool.parallel_for(size_t(wanted + head_tile - 1) / head_tile, [&](size_t t) {
      head(int(t) * head_tile, std::min(head_tile, wanted - int(t) * head_tile), logits);
    });
  }

 private:
  /// Working memory of one thread.
  struct Workspace {
    AlignedBuffer normed, attention, gate_up, activated;
  };
  static Workspace& workspace() {
    static thread_local Workspace workspace;
    return workspace;
  }

  float* hidden(int row) { return hidden_ + size_t(row) * architecture_.hidden_size; }
  float* qkv(int row) { return qkv_ + size_t(row) * architecture_.qkv_width(); }

  void embed(int first, int count) {
    const float* table = policy_.weight(policy_.layout().embedding);
    const size_t width = size_t(architecture_.hidden_size);
    for (int i = first; i < first + count; ++i)
      std::memcpy(hidden(i), table + size_t(rows_.tokens[i]) * width, width * sizeof(float));
  }

  /// Queries, keys and values of a layer; keys and values go to the cache.
  void project(int layer, int first, int count) {
    const LayerParameters& weights = policy_.layout().layers[layer];
    const int width = architecture_.hidden_size, heads = architecture_.num_attention_heads,
              kv_heads = architecture_.num_key_value_heads, head_dim = architecture_.head_dim;
    const size_t ld = size_t(architecture_.qkv_width());
    const float eps = float(architecture_.rms_norm_eps);
    float* normed = workspace().normed.scratch(size_t(count) * width);
    op_.rms_norm(hidden(first), policy_.weight(weights.input_norm), eps, normed, nullptr, count, width);
    op_.matmul(normed, size_t(width), policy_.forward_panels().layers[layer].qkv, qkv(first), ld, count, false);
    const int32_t* positions = rows_.positions.data() + first;
    op_.head_norm_rope(qkv(first), ld, policy_.weight(weights.query_norm), eps, positions, policy_.rope_cos(),
                       policy_.rope_sin(), nullptr, 0, nullptr, 0, count, heads, head_dim);
    op_.head_norm_rope(qkv(first) + architecture_.query_width(), ld, policy_.weight(weights.key_norm), eps, positions,
                       policy_.rope_cos(), policy_.rope_sin(), nullptr, 0, nullptr, 0, count, kv_heads, head_dim);
    op_.store_keys_values(qkv(first), ld, count, positions, rows_.block_tables.data() + first,
                          cache_.keys(0, layer, 0), cache_.block_stride(), head_size(architecture_), heads, kv_heads,
                          head_dim);
  }

  void attend_and_transform(int layer, int first, int count) {
    const LayerParameters& weights = policy_.layout().layers[layer];
    const LayerPanels& panels = policy_.forward_panels().layers[layer];
    const int width = architecture_.hidden_size, ffn = architecture_.intermediate_size;
    const size_t query_width = size_t(architecture_.query_width());
    Workspace& space = workspace();
    float* attention = space.attention.scratch(size_t(count) * query_width);
    op_.paged_attention({qkv(first), size_t(architecture_.qkv_width()), count, rows_.positions.data() + first,
                         rows_.block_tables.data() + first, cache_.keys(0, layer, 0), cache_.block_stride(),
                         head_size(architecture_), architecture_.num_attention_heads, architecture_.num_key_value_heads,
                         architecture_.head_dim, attention});
    op_.matmul(attention, query_width, panels.output, hidden(first), size_t(width), count, true);
    float* normed = space.normed.scratch(size_t(count) * width);
    float* gate_up = space.gate_up.scratch(size_t(count) * 2 * ffn);
    float* activated = space.activated.scratch(size_t(count) * ffn);
    op_.rms_norm(hidden(first), policy_.weight(weights.post_norm), float(architecture_.rms_norm_eps), normed, nullptr,
                 count, width);
    op_.matmul(normed, size_t(width), panels.gate_up, gate_up, size_t(2) * ffn, count, false);
    op_.swiglu(gate_up, activated, count, ffn);
    op_.matmul(activated, size_t(ffn), panels.down, hidden(first), size_t(width), count, true);
  }

  void head(int first, int count, float* logits) {
    const int width = architecture_.hidden_size;
    const size_t vocab = size_t(architecture_.vocab_size);
    float* normed = workspace().normed.scratch(size_t(count) * width);
    for (int i = 0; i < count; ++i)
      op_.rms_norm(hidden(rows_.wanted[first + i]), policy_.weight(policy_.layout().final_norm),
                   float(architecture_.rms_norm_eps), normed + size_t(i) * width, nullptr, 1, width);
    op_.matmul(normed, size_t(width), policy_.forward_panels().head, logits + size_t(first) * vocab, vocab, count, false);
  }

  const Policy& policy_;
  const Architecture& architecture_;
  const ops::Table& op_;
  KvCache& cache_;
  const Rows& rows_;
  float* hidden_;
  float* qkv_;
};

}  // namespace

KvCache::KvCache(const Architecture& architecture, int block_capacity)
    : block_capacity_(block_capacity),
      layers_(architecture.num_hidden_layers),
      heads_(architecture.num_key_value_heads),
      head_size_(head_size(architecture)) {
  if (block_capacity < 1)
    throw std::invalid_argument("KV cache: block_capacity is " + std::to_string(block_capacity) + "; it must be at least 1");
  storage_.resize(size_t(block_capacity) * block_stride());
}

size_t KvCache::block_bytes(const Architecture& architecture) {
  return size_t(architecture.num_hidden_layers) * architecture.num_key_value_heads * head_size(architecture) *
         sizeof(float);
}

size_t KvCache::block_stride() const { return size_t(layers_) * heads_ * head_size_; }

float* KvCache::keys(int block, int layer, int head) {
  return storage_.data() + size_t(block) * block_stride() + (size_t(layer) * heads_ + head) * head_size_;
}

float* KvCache::values(int block, int layer, int head) { return keys(block, layer, head) + head_size_ / 2; }

void KvCache::copy_block(int from, int to) {
  std::memcpy(keys(to, 0, 0), keys(from, 0, 0), block_stride() * sizeof(float));
}

void extend(const Policy& policy, KvCache& cache, std::span<const Feed> feeds, float* logits, ThreadPool& pool) {
  for (size_t i = 0; i < feeds.size(); ++i) check(feeds[i], i, policy.architecture(), cache);
  if (feeds.empty()) return;
  const Rows rows = lay_out(feeds);
  Extension(policy, cache, rows).run(logits, pool);
}

}  // namespace longhaul
