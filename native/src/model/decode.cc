#include "model/decode.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/linear.h"

namespace longhaul {

namespace {

/// Floats of one KV head of one layer of a block: keys, then values in panels of 32 columns.
size_t floats_per_head(int head_dim) {
  const int value_panels = (head_dim + ops::panel_columns - 1) / ops::panel_columns;
  return size_t(KvCache::block_positions) * (size_t(head_dim) + size_t(value_panels) * ops::panel_columns);
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

/// Rows of one unit of work: as many units for each thread, of equal size, and each as large as its activations allow, since
/// every unit reads all weights of a layer.
int unit_rows(int rows, int threads) {
  constexpr int most = 192;
  const int rounds = (rows + threads * most - 1) / (threads * most);
  return (rows + threads * rounds - 1) / (threads * rounds);
}

/// Rows that attend together: few enough that their scores stay in the cache.
int attention_rows(int longest, int queries_per_key_value) {
  constexpr int fewest = 12, most = 96, score_budget = 192 * 1024;
  return std::clamp(score_budget / longest / queries_per_key_value, fewest, most);
}

class Extension {
 public:
  Extension(const Policy& policy, KvCache& cache, Rows rows)
      : weights_(policy.weights()),
        architecture_(policy.architecture()),
        op_(ops::table()),
        cache_(cache),
        rows_(std::move(rows)) {
    // Kept between calls: a decode step is too short to map fresh pages.
    static thread_local AlignedBuffer hidden, qkv;
    hidden_ = hidden.scratch(size_t(rows_.size()) * architecture_.hidden_size);
    qkv_ = qkv.scratch(size_t(rows_.size()) * architecture_.qkv_width());
    for (int layer = 0; layer < architecture_.num_hidden_layers; ++layer) linears_.push_back(linears(policy, layer));
  }

  void run(float* logits, ThreadPool& pool) {
    const int layers = architecture_.num_hidden_layers;
    const auto each_unit = [&](int count, auto&& work) {
      const int unit = unit_rows(count, pool.threads());
      pool.parallel_for(size_t(count + unit - 1) / unit,
                        [&](size_t i) { work(int(i) * unit, std::min(unit, count - int(i) * unit)); });
    };
    each_unit(rows_.size(), [&](int first, int count) {
      embed(first, count);
      project(0, first, count);
    });
    for (int layer = 0; layer < layers; ++layer) {
      // Behind the last keys and values only rows whose logits are wanted matter.
      if (layer + 1 == layers) keep_wanted();
      if (rows_.size() == 0) return;
      // Every row's keys of a layer are written before any row of the call attends to them.
      each_unit(rows_.size(), [&](int first, int count) {
        attend_and_transform(layer, first, count);
        if (layer + 1 < layers) project(layer + 1, first, count);
      });
    }
    each_unit(int(rows_.wanted.size()), [&](int first, int count) { head(first, count, logits); });
  }

 private:
  /// Working memory of one thread.
  struct Workspace {
    AlignedBuffer normed, attention, gate_up, activated, adapter;
  };
  static Workspace& workspace() {
    static thread_local Workspace workspace;
    return workspace;
  }

  float* hidden(int row) { return hidden_ + size_t(row) * architecture_.hidden_size; }
  float* qkv(int row) { return qkv_ + size_t(row) * architecture_.qkv_width(); }
  float eps() const { return float(architecture_.rms_norm_eps); }
  /// Null where the model has none.
  const float* norm(const ParameterRange& range) const { return range.empty() ? nullptr : weights_.at(range); }

  void embed(int first, int count) {
    const float* table = weights_.at(weights_.layout().embedding);
    const size_t width = size_t(architecture_.hidden_size);
    for (int i = first; i < first + count; ++i)
      std::memcpy(hidden(i), table + size_t(rows_.tokens[i]) * width, width * sizeof(float));
  }

  /// y (+)= x through a layer's matrix, bias and adapters.
  void multiply(const Linear& linear, const float* x, float* y, int rows, bool accumulate) {
    float* adapter = workspace().adapter.scratch(size_t(rows) * adapter_width(linear));
    apply(op_, linear, x, size_t(linear.inputs()), y, size_t(linear.outputs()), rows, accumulate, adapter);
  }

  /// Queries, keys and values of a layer; keys and values go to the cache.
  void project(int layer, int first, int count) {
    const LayerParameters& parameters = weights_.layout().layers[layer];
    const int width = architecture_.hidden_size, heads = architecture_.num_attention_heads,
              kv_heads = architecture_.num_key_value_heads, head_dim = architecture_.head_dim;
    const size_t ld = size_t(architecture_.qkv_width());
    const float *cos = weights_.rope().cos(), *sin = weights_.rope().sin();
    float* normed = workspace().normed.scratch(size_t(count) * width);
    op_.rms_norm(hidden(first), norm(parameters.input_norm), eps(), normed, nullptr, count, width);
    multiply(linears_[layer].qkv, normed, qkv(first), count, false);
    const int32_t* positions = rows_.positions.data() + first;
    op_.head_norm_rope(qkv(first), ld, norm(parameters.query_norm), eps(), positions, cos, sin, nullptr, 0, nullptr, 0,
                       count, heads, head_dim);
    op_.head_norm_rope(qkv(first) + architecture_.query_width(), ld, norm(parameters.key_norm), eps(), positions, cos, sin,
                       nullptr, 0, nullptr, 0, count, kv_heads, head_dim);
    op_.store_keys_values(qkv(first), ld, count, positions, rows_.block_tables.data() + first, cache_.keys(0, layer, 0),
                          cache_.block_stride(), cache_.head_stride(), heads, kv_heads, head_dim);
  }

  void attend_and_transform(int layer, int first, int count) {
    const LayerParameters& parameters = weights_.layout().layers[layer];
    const LayerLinears& linear = linears_[layer];
    const int width = architecture_.hidden_size, ffn = architecture_.intermediate_size;
    const size_t query_width = size_t(architecture_.query_width());
    Workspace& space = workspace();
    float* attention = space.attention.scratch(size_t(count) * query_width);
    const int together = attention_rows(rows_.longest, architecture_.queries_per_key_value());
    for (int i = 0; i < count; i += together) {
      ops::PagedAttention args{};
      args.qkv = qkv(first + i);
      args.ld_qkv = size_t(architecture_.qkv_width());
      args.rows = std::min(together, count - i);
      args.positions = rows_.positions.data() + first + i;
      args.block_tables = rows_.block_tables.data() + first + i;
      args.cache = cache_.keys(0, layer, 0);
      args.block_stride = cache_.block_stride();
      args.head_stride = cache_.head_stride();
      args.heads = architecture_.num_attention_heads;
      args.kv_heads = architecture_.num_key_value_heads;
      args.head_dim = architecture_.head_dim;
      args.out = attention + size_t(i) * query_width;
      op_.paged_attention(args);
    }
    multiply(linear.output, attention, hidden(first), count, true);
    float* normed = space.normed.scratch(size_t(count) * width);
    float* gate_up = space.gate_up.scratch(size_t(count) * 2 * ffn);
    float* activated = space.activated.scratch(size_t(count) * ffn);
    op_.rms_norm(hidden(first), norm(parameters.post_norm), eps(), normed, nullptr, count, width);
    multiply(linear.gate_up, normed, gate_up, count, false);
    op_.swiglu(gate_up, activated, count, ffn);
    multiply(linear.down, activated, hidden(first), count, true);
  }

  /// Leaves only the rows whose logits are wanted, moved to the front in their order.
  void keep_wanted() {
    std::vector<int> kept = rows_.wanted;
    std::sort(kept.begin(), kept.end());
    const size_t hidden_bytes = size_t(architecture_.hidden_size) * sizeof(float),
                 qkv_bytes = size_t(architecture_.qkv_width()) * sizeof(float);
    for (size_t i = 0; i < kept.size(); ++i) {
      const int row = kept[i];
      if (row == int(i)) continue;
      std::memcpy(hidden(int(i)), hidden(row), hidden_bytes);
      std::memcpy(qkv(int(i)), qkv(row), qkv_bytes);
      rows_.tokens[i] = rows_.tokens[size_t(row)];
      rows_.positions[i] = rows_.positions[size_t(row)];
      rows_.block_tables[i] = rows_.block_tables[size_t(row)];
    }
    rows_.tokens.resize(kept.size());
    rows_.positions.resize(kept.size());
    rows_.block_tables.resize(kept.size());
    for (int& row : rows_.wanted) row = int(std::lower_bound(kept.begin(), kept.end(), row) - kept.begin());
  }

  void head(int first, int count, float* logits) {
    const int width = architecture_.hidden_size;
    const size_t vocab = size_t(architecture_.vocab_size);
    float* normed = workspace().normed.scratch(size_t(count) * width);
    for (int i = 0; i < count; ++i)
      op_.rms_norm(hidden(rows_.wanted[first + i]), norm(weights_.layout().final_norm), eps(),
                   normed + size_t(i) * width, nullptr, 1, width);
    op_.matmul(normed, size_t(width), weights_.forward_panels().head, logits + size_t(first) * vocab, vocab, count, false);
  }

  const Weights& weights_;
  const Architecture& architecture_;
  const ops::Table& op_;
  KvCache& cache_;
  Rows rows_;
  std::vector<LayerLinears> linears_;
  float* hidden_;
  float* qkv_;
};

}  // namespace

KvCache::KvCache(const Architecture& architecture, int block_capacity)
    : block_capacity_(block_capacity),
      layers_(architecture.num_hidden_layers),
      heads_(architecture.num_key_value_heads),
      head_dim_(architecture.head_dim),
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

float* KvCache::values(int block, int layer, int head) {
  return keys(block, layer, head) + size_t(head_dim_) * block_positions;
}

void KvCache::copy_block(int from, int to) {
  std::memcpy(keys(to, 0, 0), keys(from, 0, 0), block_stride() * sizeof(float));
}

void extend(const Policy& policy, KvCache& cache, std::span<const Feed> feeds, float* logits, ThreadPool& pool) {
  for (size_t i = 0; i < feeds.size(); ++i) check(feeds[i], i, policy.architecture(), cache);
  if (feeds.empty()) return;
  Extension(policy, cache, lay_out(feeds)).run(logits, pool);
}

}  // namespace longhaul
