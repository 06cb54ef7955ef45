#include "backend/inference/extension.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pass/layer.h"

namespace longhaul {

namespace {

/// About the number of rows that a GEMM kernel takes at once.
constexpr int kernel_rows = 12;

/// Rows that attend together, few enough that their scores stay in the cache.
int attention_rows(int longest, int queries_per_key_value) {
  constexpr int most = 96, score_budget = 192 * 1024;
  return std::clamp(score_budget / longest / queries_per_key_value, kernel_rows, most);
}

float* adapter_space(AlignedBuffer& buffer, const CpuLinear& linear, int rows) {
  return buffer.scratch(size_t(rows) * size_t(linear.adapter_width()));
}

}  // namespace

Extension::Extension(const Policy& policy, KvCache& cache, ExtensionRows rows, ThreadPool& pool)
    : pool_(pool), device_(pool), architecture_(policy.architecture()), cache_(cache), rows_(std::move(rows)) {
  device_.hold(policy);
  device_.start();
  hidden_ = CpuDevice::scratch().hidden.scratch(size_t(rows_.size()) * architecture_.hidden_size);
  qkv_ = CpuDevice::scratch().qkv.scratch(size_t(rows_.size()) * architecture_.qkv_width());
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
    device_.op().matmul_panels(x, size_t(weights.depth), weights, first, first + count, y, size_t(weights.columns), rows, accumulate);
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
  CpuScratch& scratch = CpuDevice::scratch();
  float* normed = scratch.normed.room(size_t(all) * width);
  float* attention = scratch.attention.scratch(size_t(all) * query_width);
  float* gate_up = scratch.gate_up.room(size_t(all) * 2 * ffn);
  float* activated = scratch.activated.room(size_t(all) * ffn);
  // (Adapters are small, so each thread computes them for its rows. Their sizes are the same in all layers.)
  float* qkv_adapter = adapter_space(scratch.qkv_adapter, device_.linears(0).qkv, all);
  float* output_adapter = adapter_space(scratch.output_adapter, device_.linears(0).output, all);
  float* gate_up_adapter = adapter_space(scratch.gate_up_adapter, device_.linears(0).gate_up, all);
  float* down_adapter = adapter_space(scratch.down_adapter, device_.linears(0).down, all);
  const auto of = [](const CpuLinear& linear, float* adapter, int row) { return adapter + size_t(row) * linear.adapter_width(); };

  for (int layer = 0; layer < layers; ++layer) {
    const LayerParameters& parameters = device_.layout().layers[size_t(layer)];
    const CpuLinears& linear = device_.linears(layer);
    each_unit(rows_.size(), [&](int first, int count) {
      if (layer == 0) {
        embed(first, count);
      } else {
        const CpuLinear& below = device_.linears(layer - 1).down;
        finish<float>(device_, below, of(below, down_adapter, first), {hidden(first), width}, count);
      }
      float* x = normed + size_t(first) * width;
      device_.rms_norm(hidden(first), parameters.input_norm, x, nullptr, count);
      adapt_down<float>(device_, linear.qkv, {x, width}, of(linear.qkv, qkv_adapter, first), count);
    });
    multiply(*linear.qkv.weight, normed, qkv(0), rows_.size(), false);
    each_unit(rows_.size(), [&](int first, int count) {
      finish<float>(device_, linear.qkv, of(linear.qkv, qkv_adapter, first), {qkv(first), qkv_width}, count);
      rotate_and_store(layer, first, count);
    });
    if (layer + 1 == layers) keep_wanted();
    const int rows = rows_.size();
    if (rows == 0) return;
    const int together = attention_rows(rows_.longest, architecture_.queries_per_key_value());
    each_unit(rows, std::min(together, unit_rows(rows, pool_.threads())), [&](int first, int count) {
      float* x = attention + size_t(first) * query_width;
      attend(layer, first, count, x);
      adapt_down<float>(device_, linear.output, {x, query_width}, of(linear.output, output_adapter, first), count);
    });
    multiply(*linear.output.weight, attention, hidden(0), rows, true);
    each_unit(rows, [&](int first, int count) {
      finish<float>(device_, linear.output, of(linear.output, output_adapter, first), {hidden(first), width}, count);
      float* x = normed + size_t(first) * width;
      device_.rms_norm(hidden(first), parameters.post_norm, x, nullptr, count);
      adapt_down<float>(device_, linear.gate_up, {x, width}, of(linear.gate_up, gate_up_adapter, first), count);
    });
    multiply(*linear.gate_up.weight, normed, gate_up, rows, false);
    each_unit(rows, [&](int first, int count) {
      float *x = gate_up + size_t(first) * 2 * ffn, *y = activated + size_t(first) * ffn;
      finish<float>(device_, linear.gate_up, of(linear.gate_up, gate_up_adapter, first), {x, 2 * ffn}, count);
      device_.op().swiglu(x, y, count, int(ffn));
      adapt_down<float>(device_, linear.down, {y, ffn}, of(linear.down, down_adapter, first), count);
    });
    multiply(*linear.down.weight, activated, hidden(0), rows, true);
  }
  const CpuLinear& last = device_.linears(layers - 1).down;
  each_unit(int(rows_.wanted.size()), [&](int first, int count) {
    for (int i = first; i < first + count; ++i) {
      const int row = rows_.wanted[i];
      finish<float>(device_, last, of(last, down_adapter, row), {hidden(row), width}, 1);
      device_.rms_norm(hidden(row), device_.layout().final_norm, normed + size_t(i) * width, nullptr, 1);
    }
  });
  multiply(device_.weights().forward_panels().head, normed, logits, int(rows_.wanted.size()), false);
}

void Extension::embed(int first, int count) {
  const size_t width = size_t(architecture_.hidden_size);
  device_.gather({device_.embedding(), width}, rows_.tokens.data() + first, {hidden(first), width}, count, architecture_.hidden_size);
}

void Extension::rotate_and_store(int layer, int first, int count) {
  const int32_t* positions = rows_.positions.data() + first;
  rotate_rows(device_, layer, qkv(first), positions, count, nullptr, nullptr);
  device_.op().store_keys_values(qkv(first), size_t(architecture_.qkv_width()), count, positions, rows_.block_tables.data() + first,
                                 cache_.keys(0, layer, 0), cache_.block_stride(), cache_.head_stride(), architecture_.num_attention_heads,
                                 architecture_.num_key_value_heads, architecture_.head_dim);
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
  device_.op().paged_attention(args);
}

/// Computes queries, keys and values of a layer; keys and values go to the cache.
void Extension::project(int layer, int first, int count) {
  project_rows(device_, layer, {first, count}, hidden(first), qkv(first), nullptr, applied_by(device_));
  rotate_and_store(layer, first, count);
}

void Extension::attend_and_transform(int layer, int first, int count) {
  const size_t query_width = size_t(architecture_.query_width());
  float* attention = CpuDevice::scratch().attention.scratch(size_t(count) * query_width);
  const int together = attention_rows(rows_.longest, architecture_.queries_per_key_value());
  for (int i = 0; i < count; i += together)
    attend(layer, first + i, std::min(together, count - i), attention + size_t(i) * query_width);
  float* gate_up = CpuDevice::scratch().gate_up.room(size_t(count) * 2 * size_t(architecture_.intermediate_size));
  transform_rows(device_, layer, {first, count}, attention, hidden(first), gate_up, hidden(first), nullptr, applied_by(device_));
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
  float* normed = CpuDevice::scratch().normed.room(size_t(count) * width);
  for (int i = 0; i < count; ++i)
    device_.rms_norm(hidden(rows_.wanted[size_t(first + i)]), device_.layout().final_norm, normed + size_t(i) * width, nullptr, 1);
  device_.logits(normed, logits + size_t(first) * vocab, count);
}

}  // namespace longhaul
