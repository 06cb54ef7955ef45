#include "backend/inference/cpu_extension.h"

#include <algorithm>

namespace longhaul {

namespace {

float* adapter_space(AlignedBuffer& buffer, const CpuLinear& linear, int rows) {
  return buffer.scratch(size_t(rows) * size_t(linear.adapter_width()));
}

}  // namespace

void CpuExtension::through_layers() {
  by_columns_ = split_ == Split::by_columns || (split_ == Split::as_fits && better_by_columns());
  if (by_columns_) return run_by_columns();
  if ((split_ == Split::in_turns || (split_ == Split::as_fits && better_in_turns())) && alone()) return run_in_turns();
  Extension::through_layers();
}

bool CpuExtension::better_by_columns() const {
  constexpr int most_rows = 512;  // the activations of all rows exist at once
  const Architecture& arch = architecture();
  const size_t layer = width() * (qkv_width() + size_t(arch.query_width()) + 3 * size_t(arch.intermediate_size));
  const bool few = rows_.size() < CpuDevice::kernel_rows * device_.threads();
  return device_.threads() > 1 && rows_.size() <= most_rows && layer >= (few ? size_t(1) << 18 : size_t(1) << 21);
}

void CpuExtension::multiply(const ops::Panels& weights, const float* x, float* y, int rows, bool accumulate) {
  // Units are small, so that the weights of one unit stay in a core's cache while all rows pass by.
  const int panels = ops::panel_count(weights.columns), unit = std::clamp(panels / (4 * device_.threads()), 1, 4);
  device_.tiles(panels, unit, [&](RowRange at) {
    device_.op().matmul_panels(x, size_t(weights.depth), weights, at.first, at.first + at.count, y, size_t(weights.columns), rows, accumulate);
  });
}

void CpuExtension::run_by_columns() {
  const int layers = architecture().num_hidden_layers, all = rows_.size();
  const size_t width = this->width(), ffn = size_t(architecture().intermediate_size), query_width = size_t(architecture().query_width());
  CpuScratch& scratch = CpuDevice::scratch();
  float* normed = scratch.normed.room(size_t(all) * width);
  float* attention = scratch.attention.room(size_t(all) * query_width);
  float* gate_up = scratch.gate_up.room(size_t(all) * 2 * ffn);
  float* activated = scratch.activated.room(size_t(all) * ffn);
  // (Adapters are small, so each thread computes them for its rows. Their sizes are the same in all layers.)
  float* qkv_adapter = adapter_space(scratch.qkv_adapter, device_.linears(0).qkv, all);
  float* output_adapter = adapter_space(scratch.output_adapter, device_.linears(0).output, all);
  float* gate_up_adapter = adapter_space(scratch.gate_up_adapter, device_.linears(0).gate_up, all);
  float* down_adapter = adapter_space(scratch.down_adapter, device_.linears(0).down, all);
  const auto of = [](const CpuLinear& linear, float* adapter, int row) { return adapter + size_t(row) * linear.adapter_width(); };
  const auto finish_down = [&](int layer, RowRange at) {
    const CpuLinear& down = device_.linears(layer).down;
    finish<float>(device_, down, of(down, down_adapter, at.first), {hidden(at.first), width}, at.count);
  };

  for (int layer = 0; layer < layers; ++layer) {
    const LayerParameters& parameters = device_.layout().layers[size_t(layer)];
    const CpuLinears& linear = device_.linears(layer);
    device_.feed_rows(rows_.size(), [&](RowRange at) {
      if (layer == 0)
        embed(at);
      else
        finish_down(layer - 1, at);
      float* x = normed + size_t(at.first) * width;
      device_.rms_norm(hidden(at.first), parameters.input_norm, x, nullptr, at.count);
      adapt_down<float>(device_, linear.qkv, {x, width}, of(linear.qkv, qkv_adapter, at.first), at.count);
    });
    multiply(*linear.qkv.weight, normed, qkv(0), rows_.size(), false);
    device_.feed_rows(rows_.size(), [&](RowRange at) {
      finish<float>(device_, linear.qkv, of(linear.qkv, qkv_adapter, at.first), {qkv(at.first), qkv_width()}, at.count);
      rotate_and_store(layer, at);
    });
    if (layer + 1 == layers) keep_wanted();
    const int rows = rows_.size();
    if (rows == 0) return;
    device_.tiles(rows, std::min(device_.attention_rows(rows_), device_.unit_rows(rows)), [&](RowRange at) {
      float* x = attention + size_t(at.first) * query_width;
      device_.attend(*cache_, layer, &rows_, at, qkv(at.first), x);
      adapt_down<float>(device_, linear.output, {x, query_width}, of(linear.output, output_adapter, at.first), at.count);
    });
    multiply(*linear.output.weight, attention, hidden(0), rows, true);
    device_.feed_rows(rows, [&](RowRange at) {
      finish<float>(device_, linear.output, of(linear.output, output_adapter, at.first), {hidden(at.first), width}, at.count);
      float* x = normed + size_t(at.first) * width;
      device_.rms_norm(hidden(at.first), parameters.post_norm, x, nullptr, at.count);
      adapt_down<float>(device_, linear.gate_up, {x, width}, of(linear.gate_up, gate_up_adapter, at.first), at.count);
    });
    multiply(*linear.gate_up.weight, normed, gate_up, rows, false);
    device_.feed_rows(rows, [&](RowRange at) {
      float *x = gate_up + size_t(at.first) * 2 * ffn, *y = activated + size_t(at.first) * ffn;
      finish<float>(device_, linear.gate_up, of(linear.gate_up, gate_up_adapter, at.first), {x, 2 * ffn}, at.count);
      device_.swiglu(x, y, at.count);
      adapt_down<float>(device_, linear.down, {y, ffn}, of(linear.down, down_adapter, at.first), at.count);
    });
    multiply(*linear.down.weight, activated, hidden(0), rows, true);
  }
  device_.feed_rows(rows_.size(), [&](RowRange at) { finish_down(layers - 1, at); });
}

void CpuExtension::head(RowRange targets, float* logits) {
  if (!by_columns_) return Extension::head(targets, logits);
  float* normed = CpuDevice::scratch().normed.room(size_t(targets.count) * width());
  device_.feed_rows(targets.count, [&](RowRange at) { norm_wanted(targets, at, normed + size_t(at.first) * width()); });
  multiply(*device_.head(), normed, logits, targets.count, false);
}

}  // namespace longhaul
