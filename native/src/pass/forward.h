// The forward half of ForestPass: embedding, layers, final norm.
#pragma once

#include <algorithm>

#include "pass/forest_pass.h"
#include "pass/layer.h"

namespace longhaul {

template <class Device>
void ForestPass<Device>::prepare_forward(const PassRange& pass) {
  const Architecture& arch = architecture();
  const RowWidths widths(arch, nullptr);
  const int rows = plan_.most_rows();
  const size_t count = size_t(arch.num_hidden_layers), kept_layers = keep_ == Keep::everything ? count : 1;
  inputs_.resize(std::max(inputs_.size(), keep_ == Keep::nothing ? size_t(1) : count));
  for (size_t i = 0; i < (keep_ == Keep::nothing ? 1 : count); ++i) inputs_[i].rows(rows, widths.hidden);
  layers_.resize(std::max(layers_.size(), kept_layers));
  for (size_t i = 0; i < kept_layers; ++i) {
    LayerActivations<Device>& act = layers_[i];
    act.qkv.rows(rows, widths.qkv);
    act.attention.rows(rows, widths.query);
    if (keep_ == Keep::nothing) continue;
    act.heads_saved.rows(rows, widths.saved);
    act.heads_inverse.rows(rows, widths.inverse);
    act.log_sums.rows(rows, widths.heads);
    act.middle.rows(rows, widths.hidden);
    act.gate_up.rows(rows, 2 * widths.ffn);
    act.adapter_down.rows(rows, device_.linears(0));
  }
  last_hidden_.rows(rows, widths.hidden);
  final_normed_.rows(rows, widths.hidden);
  final_inverse_.rows(rows, 1);
  if (!several_passes() || pass.first_row > 0) return;
  keys_values_.resize(count);
  for (Activations<Device>& layer : keys_values_) layer.rows(forest_->rows(), widths.keys_values);
}

template <class Device>
void ForestPass<Device>::forward(const PassRange& pass, Keep keep, bool store_keys) {
  keep_ = keep;
  prepare_forward(pass);
  const int width = architecture().hidden_size;
  device_.rows(pass.rows, [&](RowRange at) {
    device_.gather({device_.embedding(), size_t(width)}, arrays(pass).tokens.data() + at.first,
                   {input(0).row(at.first, size_t(width)), size_t(width)}, at.count, width);
    project(pass, 0, at, kept(0), store_keys);
  });
  for (int layer = 0; layer < architecture().num_hidden_layers; ++layer) {
    attend(pass, layer, kept(layer));
    device_.rows(outputs(pass, layer), [&](RowRange at) {
      transform(pass, layer, at, kept(layer), true);
      if (!last(layer)) project(pass, layer + 1, at, kept(layer + 1), store_keys);
    });
    tell(advanced_);
  }
}

template <class Device>
void ForestPass<Device>::recompute(const PassRange& pass, int layer) {
  device_.rows(pass.rows, [&](RowRange at) { project(pass, layer, at, true, false); });
  attend(pass, layer, true);
  device_.rows(outputs(pass, layer), [&](RowRange at) { transform(pass, layer, at, true, false); });
}

/// Of a layer whose queries, keys and values are computed.
template <class Device>
ForestAttention<typename Device::Activation> ForestPass<Device>::attention_of(int layer, bool saving) {
  const RowWidths widths(architecture(), nullptr);
  LayerActivations<Device>& act = activations(layer);
  // With a single pass, the keys and values of all rows lie beside their queries.
  Matrix<const Activation> keys_values{act.qkv.data() + widths.query, widths.qkv};
  if (several_passes()) keys_values = {keys_values_[size_t(layer)].data(), widths.keys_values};
  return {last(layer), act.qkv.data(), keys_values, act.attention.data(), saving ? act.log_sums.data() : nullptr};
}

/// Computes `attention` of a layer, and `log_sums` if `saving`.
template <class Device>
void ForestPass<Device>::attend(const PassRange& pass, int layer, bool saving) {
  if (outputs(pass, layer) > 0) device_.attention(arrays(pass).own, attention_of(layer, saving));
}

/// Computes queries, keys and values of a layer.
template <class Device>
void ForestPass<Device>::project(const PassRange& pass, int layer, RowRange at, bool saving, bool store_keys) {
  const Architecture& arch = architecture();
  LayerActivations<Device>& act = activations(layer);
  const size_t width = size_t(arch.hidden_size), ld = size_t(arch.qkv_width()), kept_width = size_t(2) * size_t(arch.key_value_width());
  const RowWidths widths(arch, nullptr);
  const bool saves = arch.has_head_norms() && saving;
  auto* qkv = act.qkv.row(at.first, ld);
  project_rows(device_, layer, at, input(layer).row(at.first, width), qkv, saving ? &act.adapter_down : nullptr, applied_by(device_));
  rotate_rows(device_, layer, qkv, arrays(pass).positions.data() + at.first, at.count,
              saves ? act.heads_saved.row(at.first, widths.saved) : nullptr, saves ? act.heads_inverse.row(at.first, widths.inverse) : nullptr);
  if (!store_keys || !several_passes()) return;
  device_.gather({qkv + arch.query_width(), ld}, nullptr,
                 {keys_values_[size_t(layer)].row(pass.first_row + at.first, kept_width), kept_width}, at.count, int(kept_width));
}

/// Computes the layer's output from its attention; in the last layer, only for outputs, and with the final norm. Without `output_wanted`,
/// computes only what the backward pass reads.
template <class Device>
void ForestPass<Device>::transform(const PassRange& pass, int layer, RowRange at, bool saving, bool output_wanted) {
  const Architecture& arch = architecture();
  LayerActivations<Device>& act = activations(layer);
  auto& scratch = device_.scratch();
  const size_t width = size_t(arch.hidden_size);
  auto* middle = device_.place(act.middle, scratch.middle, at, width, saving);
  if (last(layer))
    device_.gather({input(layer).data(), width}, arrays(pass).output_rows.data() + at.first, {middle, width}, at.count, arch.hidden_size);
  else
    device_.gather({input(layer).row(at.first, width), width}, nullptr, {middle, width}, at.count, arch.hidden_size);
  const bool reads_output = device_.linears(layer).down.adapter_width() > 0;
  auto* output = !output_wanted ? (reads_output ? scratch.output.room(size_t(at.count) * width) : nullptr)
                 : last(layer)  ? last_hidden_.row(at.first, width)
                                : input(layer + 1).row(at.first, width);
  transform_rows(device_, layer, at, act.attention.row(at.first, size_t(arch.query_width())), middle,
                 device_.place(act.gate_up, scratch.gate_up, at, size_t(2) * size_t(arch.intermediate_size), saving), output,
                 saving ? &act.adapter_down : nullptr, applied_by(device_));
  if (output_wanted && last(layer))
    device_.rms_norm(output, policy_->layout().final_norm, final_normed_.row(at.first, width), final_inverse_.data() + at.first, at.count);
}

}  // namespace longhaul
