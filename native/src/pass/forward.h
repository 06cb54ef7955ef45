// The forward half of ForestPass: embedding, layers, final norm.
#pragma once

#include <algorithm>

#include "pass/forest_pass.h"

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

/// Computes queries, keys and values of a layer.
template <class Device>
void ForestPass<Device>::project(const PassRange& pass, int layer, RowRange at, bool saving, bool store_keys) {
  const Architecture& arch = architecture();
  const LayerParameters& parameters = this->parameters(layer);
  const auto& linear = device_.linears(layer).qkv;
  LayerActivations<Device>& act = activations(layer);
  const int heads = arch.num_attention_heads, kv_heads = arch.num_key_value_heads;
  const size_t width = size_t(arch.hidden_size), ld = size_t(arch.qkv_width()), query_width = size_t(arch.query_width()),
               ld_saved = query_width + size_t(arch.key_value_width()), ld_inverse = size_t(heads) + size_t(kv_heads);
  auto* normed = device_.scratch().normed.room(size_t(at.count) * width);
  device_.rms_norm(input(layer).row(at.first, width), parameters.input_norm, normed, nullptr, at.count);
  auto* qkv = act.qkv.row(at.first, ld);
  device_.apply(linear, {normed, width}, {qkv, ld}, at.count, false,
                device_.place(act.adapter_down.qkv, device_.scratch().adapter_down, at, size_t(linear.adapter_width()), saving));

  const bool saves = arch.has_head_norms() && saving;
  auto* saved = saves ? act.heads_saved.row(at.first, ld_saved) : nullptr;
  float* inverse = saves ? act.heads_inverse.row(at.first, ld_inverse) : nullptr;
  const int32_t* positions = arrays(pass).positions.data() + at.first;
  device_.rotate({qkv, ld}, parameters.query_norm, positions, {saved, ld_saved}, {inverse, ld_inverse}, at.count, heads);
  device_.rotate({qkv + query_width, ld}, parameters.key_norm, positions, {saves ? saved + query_width : nullptr, ld_saved},
                 {saves ? inverse + heads : nullptr, ld_inverse}, at.count, kv_heads);
  if (!store_keys || !several_passes()) return;
  const size_t kept_width = size_t(2) * size_t(arch.key_value_width());
  device_.gather({qkv + query_width, ld}, nullptr, {keys_values_[size_t(layer)].row(pass.first_row + at.first, kept_width), kept_width},
                 at.count, int(kept_width));
}

/// Computes the layer's output from its attention; in the last layer, only for outputs, and with the final norm. Without `output_wanted`,
/// computes only what the backward pass reads.
template <class Device>
void ForestPass<Device>::transform(const PassRange& pass, int layer, RowRange at, bool saving, bool output_wanted) {
  const Architecture& arch = architecture();
  const auto& linears = device_.linears(layer);
  LayerActivations<Device>& act = activations(layer);
  RowScratch<Activations<Device>>& scratch = device_.scratch();
  const size_t rows = size_t(at.count), width = size_t(arch.hidden_size), ffn = size_t(arch.intermediate_size),
               query_width = size_t(arch.query_width());
  const auto down = [&](Activations<Device>& buffer, const auto& linear) {
    return device_.place(buffer, scratch.adapter_down, at, size_t(linear.adapter_width()), saving);
  };

  auto* middle = device_.place(act.middle, scratch.middle, at, width, saving);
  if (last(layer))
    device_.gather({input(layer).data(), width}, arrays(pass).output_rows.data() + at.first, {middle, width}, at.count, arch.hidden_size);
  else
    device_.gather({input(layer).row(at.first, width), width}, nullptr, {middle, width}, at.count, arch.hidden_size);
  device_.apply(linears.output, {act.attention.row(at.first, query_width), query_width}, {middle, width}, at.count, true,
                down(act.adapter_down.output, linears.output));
  auto* normed = scratch.normed.room(rows * width);
  device_.rms_norm(middle, parameters(layer).post_norm, normed, nullptr, at.count);
  auto* gate_up = device_.place(act.gate_up, scratch.gate_up, at, 2 * ffn, saving);
  device_.apply(linears.gate_up, {normed, width}, {gate_up, 2 * ffn}, at.count, false, down(act.adapter_down.gate_up, linears.gate_up));
  if (!output_wanted && linears.down.adapter_width() == 0) return;

  auto* activated = scratch.activated.room(rows * ffn);
  device_.swiglu(gate_up, activated, at.count);
  auto* output = !output_wanted  ? scratch.output.room(rows * width)
                 : last(layer) ? last_hidden_.row(at.first, width)
                               : input(layer + 1).row(at.first, width);
  device_.gather({middle, width}, nullptr, {output, width}, at.count, arch.hidden_size);
  device_.apply(linears.down, {activated, ffn}, {output, width}, at.count, true, down(act.adapter_down.down, linears.down));
  if (output_wanted && last(layer))
    device_.rms_norm(output, policy_->layout().final_norm, final_normed_.row(at.first, width), final_inverse_.data() + at.first, at.count);
}

}  // namespace longhaul
