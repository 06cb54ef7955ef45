#include "model/inference/extension.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "model/inference/workspace.h"

namespace longhaul {

namespace {

/// About the number of rows that a GEMM kernel takes at once.
constexpr int kernel_rows = 12;

/// Rows that attend together, few enough that their scores stay in the cache.
int attention_rows(int longest, int queries_per_key_value) {
  constexpr int most = 96, score_budget = 192 * 1024;
  return std::clamp(score_budget / longest / queries_per_key_value, kernel_rows, most);
}

}  // namespace

Extension::Extension(const Policy& policy, KvCache& cache, ExtensionRows rows, ThreadPool& pool)
    : weights_(policy.weights()),
      architecture_(policy.architecture()),
      op_(ops::table()),
      cache_(cache),
      rows_(std::move(rows)),
      pool_(pool) {
  hidden_ = workspace().hidden.scratch(size_t(rows_.size()) * architecture_.hidden_size);
  qkv_ = workspace().qkv.scratch(size_t(rows_.size()) * architecture_.qkv_width());
  for (int layer = 0; layer < architecture_.num_hidden_layers; ++layer) linears_.push_back(linears(policy, layer));
}

bool Extension::better_by_columns() const {
  constexpr int most_rows = 512;  // the activations of all rows exist at once
  const size_t hidden = size_t(architecture_.hidden_size);
  const size_t layer = hidden * (size_t(architecture_.qkv_width()) + size_t(architecture_.query_width()) +
                                 3 * size_t(architecture_.intermediate_size));
  const bool few = rows_.size() < kernel_rows * pool_.threads();
  return pool_.threads() > 1 && rows_.size() <= most_rows && layer >= (few ? size_t(1) << 18 : size_t(1) << 21);
}

void Extension::multiply(const ops::Panels& weights, const float* x, float* y, int rows, bool accumulate) {
  // Units are small, so that the weights of one unit stay in a core's cache while all rows pass by.
  const int panels = ops::panel_count(weights.columns), unit = std::clamp(panels / (4 * pool_.threads()), 1, 4);
  each_unit(panels, unit, [&](int first, int count) {
    op_.matmul_panels(x, size_t(weights.depth), weights, first, first + count, y, size_t(weights.columns), rows, accumulate);
  });
}

void Extension::run_by_rows(float* logits) {
  const int layers = architecture_.num_hidden_layers;
  each_unit(rows_.size(), [&](int first, int count) {
    embed(first, count);
    project(0, first, count);
  });
  for (int layer = 0; layer < layers; ++layer) {
    // After the keys and values of the last layer, only rows with wanted logits matter.
    if (layer + 1 == layers) keep_wanted();
    if (rows_.size() == 0) return;
    // All rows' keys of a layer are written before any row of the call attends to them.
    each_unit(rows_.size(), [&](int first, int count) {
      attend_and_transform(layer, first, count);
      if (layer + 1 < layers) project(layer + 1, first, count);
    });
  }
  each_unit(int(rows_.wanted.size()), [&](int first, int count) { head(first, count, logits); });
}

void Extension::run_by_columns(float* logits) {
  const int layers = architecture_.num_hidden_layers, all = rows_.size();
  const size_t width = size_t(architecture_.hidden_size), ffn = size_t(architecture_.intermediate_size),
               query_width = size_t(architecture_.query_width()), qkv_width = size_t(architecture_.qkv_width());
  Workspace& space = workspace();
  float* normed = space.normed.scratch(size_t(all) * width);
  float* attention = space.attention.scratch(size_t(all) * query_width);
  float* gate_up = space.gate_up.scratch(size_t(all) * 2 * ffn);
  float* activated = space.activated.scratch(size_t(all) * ffn);
  // (Adapters are small, so each thread computes them for its rows. Their sizes are the same in all layers.)
  float* qkv_adapter = adapter_space(space.qkv_adapter, linears_[0].qkv, all);
  float* output_adapter = adapter_space(space.output_adapter, linears_[0].output, all);
  float* gate_up_adapter = adapter_space(space.gate_up_adapter, linears_[0].gate_up, all);
  float* down_adapter = adapter_space(space.down_adapter, linears_[0].down, all);
  const auto of = [](const Linear& linear, float* adapter, int row) { return adapter + size_t(row) * linear.adapter_width(); };

  for (int layer = 0; layer < layers; ++layer) {
    const LayerParameters& parameters = weights_.layout().layers[layer];
    const LayerLinears& linear = linears_[layer];
    each_unit(rows_.size(), [&](int first, int count) {
      if (layer == 0) {
        embed(first, count);
      } else {
        const Linear& below = linears_[layer - 1].down;
        finish(op_, below, of(below, down_adapter, first), hidden(first), width, count);
      }
      float* x = normed + size_t(first) * width;
      normalize(parameters.input_norm, first, count, x);
      adapt_down(op_, linear.qkv, x, width, count, of(linear.qkv, qkv_adapter, first));
    });
    multiply(*linear.qkv.panels, normed, qkv(0), rows_.size(), false);
    each_unit(rows_.size(), [&](int first, int count) {
      finish(op_, linear.qkv, of(linear.qkv, qkv_adapter, first), qkv(first), qkv_width, count);
      rotate_and_store(layer, first, count);
    });
    if (layer + 1 == layers) keep_wanted();
    const int rows = rows_.size();
    if (rows == 0) return;
    const int together = attention_rows(rows_.longest, architecture_.queries_per_key_value());
    each_unit(rows, std::min(together, unit_rows(rows, pool_.threads())), [&](int first, int count) {
      float* x = attention + size_t(first) * query_width;
      attend(layer, first, count, x);
      adapt_down(op_, linear.output, x, query_width, count, of(linear.output, output_adapter, first));
    });
    multiply(*linear.output.panels, attention, hidden(0), rows, true);
    each_unit(rows, [&](int first, int count) {
      finish(op_, linear.output, of(linear.output, output_adapter, first), hidden(first), width, count);
      float* x = normed + size_t(first) * width;
      normalize(parameters.post_norm, first, count, x);
      adapt_down(op_, linear.gate_up, x, width, count, of(linear.gate_up, gate_up_adapter, first));
    });
    multiply(*linear.gate_up.panels, normed, gate_up, rows, false);
    each_unit(rows, [&](int first, int count) {
      float *x = gate_up + size_t(first) * 2 * ffn, *y = activated + size_t(first) * ffn;
      finish(op_, linear.gate_up, of(linear.gate_up, gate_up_adapter, first), x, 2 * ffn, count);
      op_.swiglu(x, y, count, int(ffn));
      adapt_down(op_, linear.down, y, ffn, count, of(linear.down, down_adapter, first));
    });
    multiply(*linear.down.panels, activated, hidden(0), rows, true);
  }
  const Linear& last = linears_[layers - 1].down;
  each_unit(int(rows_.wanted.size()), [&](int first, int count) {
    for (int i = first; i < first + count; ++i) {
      const int row = rows_.wanted[i];
      finish(op_, last, of(last, down_adapter, row), hidden(row), width, 1);
      normalize(weights_.layout().final_norm, row, 1, normed + size_t(i) * width);
    }
  });
  multiply(weights_.forward_panels().head, normed, logits, int(rows_.wanted.size()), false);
}

void Extension::embed(int first, int count) {
  const float* table = weights_.at(weights_.layout().embedding);
  const size_t width = size_t(architecture_.hidden_size);
  for (int i = first; i < first + count; ++i)
    std::memcpy(hidden(i), table + size_t(rows_.tokens[i]) * width, width * sizeof(float));
}

void Extension::normalize(const ParameterRange& norm, int first, int count, float* normed) {
  op_.rms_norm(hidden(first), weights_.at(norm), float(architecture_.rms_norm_eps), normed, nullptr, count,
               architecture_.hidden_size);
}

void Extension::rotate_and_store(int layer, int first, int count) {
  const LayerParameters& parameters = weights_.layout().layers[layer];
  const int heads = architecture_.num_attention_heads, kv_heads = architecture_.num_key_value_heads,
            head_dim = architecture_.head_dim;
  const size_t ld = size_t(architecture_.qkv_width());
  const int32_t* positions = rows_.positions.data() + first;
  const auto rotate = [&](float* x, const ParameterRange& norm, int of_heads) {
    op_.head_norm_rope(x, ld, norm.empty() ? nullptr : weights_.at(norm), float(architecture_.rms_norm_eps), positions,
                       weights_.rope().cos(), weights_.rope().sin(), nullptr, 0, nullptr, 0, count, of_heads, head_dim);
  };
  rotate(qkv(first), parameters.query_norm, heads);
  rotate(qkv(first) + architecture_.query_width(), parameters.key_norm, kv_heads);
  op_.store_keys_values(qkv(first), ld, count, positions, rows_.block_tables.data() + first, cache_.keys(0, layer, 0),
                        cache_.block_stride(), cache_.head_stride(), heads, kv_heads, head_dim);
}

void Extension::attend(int layer, int first, int count, float* out) {
  ops::PagedAttention args{};
  args.qkv = qkv(first);
  args.ld_qkv = size_t(architecture_.qkv_width());
  args.rows = count;
  args.positions = rows_.positions.data() + first;
  args.block_tables = rows_.block_tables.data() + first;
  args.cache = cache_.keys(0, layer, 0);
  args.block_stride = cache_.block_stride();
  args.head_stride = cache_.head_stride();
  args.heads = architecture_.num_attention_heads;
  args.kv_heads = architecture_.num_key_value_heads;
  args.head_dim = architecture_.head_dim;
  args.out = out;
  op_.paged_attention(args);
}

/// Computes queries, keys and values of a layer; keys and values go to the cache.
void Extension::project(int layer, int first, int count) {
  const Linear& linear = linears_[layer].qkv;
  float* normed = workspace().normed.scratch(size_t(count) * architecture_.hidden_size);
  normalize(weights_.layout().layers[layer].input_norm, first, count, normed);
  apply(op_, linear, normed, size_t(linear.inputs()), qkv(first), size_t(linear.outputs()), count, false,
        adapter_space(workspace().qkv_adapter, linear, count));
  rotate_and_store(layer, first, count);
}

void Extension::attend_and_transform(int layer, int first, int count) {
  const LayerLinears& linear = linears_[layer];
  const size_t width = size_t(architecture_.hidden_size), ffn = size_t(architecture_.intermediate_size),
               query_width = size_t(architecture_.query_width());
  Workspace& space = workspace();
  float* attention = space.attention.scratch(size_t(count) * query_width);
  const int together = attention_rows(rows_.longest, architecture_.queries_per_key_value());
  for (int i = 0; i < count; i += together)
    attend(layer, first + i, std::min(together, count - i), attention + size_t(i) * query_width);
  apply(op_, linear.output, attention, query_width, hidden(first), width, count, true,
        adapter_space(space.output_adapter, linear.output, count));
  float* normed = space.normed.scratch(size_t(count) * width);
  float* gate_up = space.gate_up.scratch(size_t(count) * 2 * ffn);
  float* activated = space.activated.scratch(size_t(count) * ffn);
  normalize(weights_.layout().layers[layer].post_norm, first, count, normed);
  apply(op_, linear.gate_up, normed, width, gate_up, 2 * ffn, count, false,
        adapter_space(space.gate_up_adapter, linear.gate_up, count));
  op_.swiglu(gate_up, activated, count, int(ffn));
  apply(op_, linear.down, activated, ffn, hidden(first), width, count, true,
        adapter_space(space.down_adapter, linear.down, count));
}

void Extension::keep_wanted() {
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

void Extension::head(int first, int count, float* logits) {
  const size_t width = size_t(architecture_.hidden_size), vocab = size_t(architecture_.vocab_size);
  float* normed = workspace().normed.scratch(size_t(count) * width);
  for (int i = 0; i < count; ++i)
    normalize(weights_.layout().final_norm, rows_.wanted[first + i], 1, normed + size_t(i) * width);
  op_.matmul(normed, width, weights_.forward_panels().head, logits + size_t(first) * vocab, vocab, count, false);
}

}  // namespace longhaul
