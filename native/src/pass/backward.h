// The backward half of ForestPass: layers, from the last to the first, and the embedding. Within a layer, gradients go over pieces of 512
// rows from the last to the first.
#pragma once

#include "pass/forest_pass.h"
#include "pass/layer.h"

namespace longhaul {

template <class Device>
void ForestPass<Device>::prepare_backward(const PassRange& pass) {
  const RowWidths widths(architecture(), nullptr);
  const int rows = plan_.most_rows();
  d_hidden_.rows(rows, widths.hidden);
  d_hidden_all_.rows(rows, widths.hidden);
  d_attention_.rows(rows, widths.query);
  d_qkv_.rows(rows, widths.qkv);
  if (&pass != &plan_.passes.back()) return;
  // The last pass is the first to go backward: sums over all passes start at zero.
  const auto zero = [&](Activations<Device>& sums, int count, size_t width) {
    sums.rows(count, width);
    device_.zeros(sums, size_t(count) * width);
  };
  if (several_passes()) {
    d_keys_values_.resize(size_t(architecture().num_hidden_layers));
    for (Activations<Device>& layer : d_keys_values_) zero(layer, forest_->rows(), widths.keys_values);
  }
  if (!frozen()) zero(d_embedding_, int(plan_.distinct_tokens.size()), widths.hidden);
}

template <class Device>
void ForestPass<Device>::backward(const PassRange& pass) {
  prepare_backward(pass);
  head_gradient(pass);
  for (int layer = architecture().num_hidden_layers - 1; layer >= 0; --layer) {
    if (!kept(layer)) recompute(pass, layer);
    backward_layer(pass, layer);
    tell(advanced_);
  }
  // Kept apart from the gradients: with tied embeddings, the head's products of each pass would otherwise be added between these sums.
  if (frozen()) return;
  const size_t width = size_t(architecture().hidden_size);
  PassArrays<Device>& lists = arrays(pass);
  device_.add_rows({d_hidden_.data(), width}, {lists.token_starts.data(), lists.token_rows.data(), lists.distinct_tokens},
                   lists.token_slots.data(), {d_embedding_.data(), width}, int(width));
}

/// On entry `d_hidden_` holds the gradient of the layer's output (in the last layer: nothing yet); on return, the gradient of its input.
template <class Device>
void ForestPass<Device>::backward_layer(const PassRange& pass, int layer) {
  device_.pieces(plan_.pieces(pass, last(layer)), layer, gradients_, [&](Piece& piece) { transform_backward(pass, layer, piece); });
  // With adapters, only the first layer's qkv adapter is trained below this attention.
  if (layer == 0 && frozen() && !device_.backward_linears(layer).qkv.trained()) return;
  attend_backward(pass, layer);
  device_.pieces(plan_.pieces(pass, false), layer, gradients_, [&](Piece& piece) { project_backward(pass, layer, piece); });
}

/// A linear layer: the gradient of its input x unless `dx` is null, and what the rows add to the gradients of its weights or adapters.
template <class Device>
void ForestPass<Device>::linear_backward(int layer, Part part, Piece& piece, Matrix<const Activation> dy, Matrix<const Activation> x,
                                         Activation* dx) {
  const auto& linear = part_of(device_.backward_linears(layer), part);
  const auto* down = part_of(activations(layer).adapter_down, part).row(piece.rows.first, size_t(linear.adapter_width()));
  piece.linear_backward(part, linear, dy, x, down, dx);
}

/// Computes the gradient of the layer's attention from the gradient of its output (in the last layer: from the head's gradient).
template <class Device>
void ForestPass<Device>::transform_backward(const PassRange& pass, int layer, Piece& piece) {
  const RowWidths widths(architecture(), nullptr);
  const LayerParameters& parameters = this->parameters(layer);
  LayerActivations<Device>& act = activations(layer);
  auto& scratch = device_.scratch();
  const int first = piece.rows.first, count = piece.rows.count;
  const size_t rows = size_t(count), width = widths.hidden, ffn = widths.ffn;
  auto* d_rows = d_hidden_.row(first, width);
  auto* d_normed = scratch.d_normed.room(rows * width);
  if (last(layer)) {
    device_.sum_rows({d_targets_.data(), width}, {arrays(pass).output_starts.data() + first, arrays(pass).output_targets.data(), count},
                     {d_normed, width}, int(width));
    device_.clear(d_rows, rows * width);
    piece.norm_backward(policy_->layout().final_norm, last_hidden_.row(first, width), final_inverse_.data() + first, d_normed, d_rows);
  }

  auto* gate_up = act.gate_up.row(first, 2 * ffn);
  auto* activated = scratch.activated.room(rows * ffn);
  if (device_.backward_linears(layer).down.trained()) device_.swiglu(gate_up, activated, count);
  auto* d_activated = scratch.d_activated.room(rows * ffn);
  linear_backward(layer, Part::down, piece, {piece.lasting(d_rows), width}, {activated, ffn}, d_activated);
  auto* d_gate_up = piece.d_gate_up();
  device_.swiglu_backward(gate_up, d_activated, d_gate_up, count);

  const auto* middle = act.middle.row(first, width);
  auto* normed = scratch.normed.room(rows * width);
  float* inverse = scratch.inverse.room(rows);
  device_.rms_norm(middle, parameters.post_norm, normed, inverse, count);
  linear_backward(layer, Part::gate_up, piece, {d_gate_up, 2 * ffn}, {normed, width}, d_normed);
  piece.norm_backward(parameters.post_norm, middle, inverse, d_normed, d_rows);
  linear_backward(layer, Part::output, piece, {d_rows, width}, {act.attention.row(first, widths.query), widths.query},
                  d_attention_.row(first, widths.query));
}

/// Computes the gradients of queries, keys and values.
template <class Device>
void ForestPass<Device>::attend_backward(const PassRange& pass, int layer) {
  const RowWidths widths(architecture(), nullptr);
  const size_t rows = size_t(pass.rows), width = widths.hidden;
  device_.zeros(d_qkv_, rows * widths.qkv);
  if (last(layer)) {
    device_.zeros(d_hidden_all_, rows * width);
    device_.rows(pass.outputs, [&](RowRange at) {
      device_.scatter({d_hidden_.row(at.first, width), width}, arrays(pass).output_rows.data() + at.first, {d_hidden_all_.data(), width},
                      at.count, int(width));
    });
    d_hidden_.swap(d_hidden_all_);
  }
  if (outputs(pass, layer) == 0) return;
  device_.attention_backward(arrays(pass).own, attention_of(layer, true),
                             {d_attention_.data(), d_qkv_.data(),
                              several_passes() ? d_keys_values_[size_t(layer)].data() : d_qkv_.data() + widths.query});
}

/// Computes the gradient of the layer's input from the gradients of queries, keys and values.
template <class Device>
void ForestPass<Device>::project_backward(const PassRange& pass, int layer, Piece& piece) {
  const Architecture& arch = architecture();
  const RowWidths widths(arch, nullptr);
  const LayerParameters& parameters = this->parameters(layer);
  LayerActivations<Device>& act = activations(layer);
  auto& scratch = device_.scratch();
  const int first = piece.rows.first, count = piece.rows.count, heads = arch.num_attention_heads;
  const size_t rows = size_t(count), width = widths.hidden, ld = widths.qkv;
  auto* d_rows = d_qkv_.row(first, ld);
  if (several_passes())
    device_.gather({d_keys_values_[size_t(layer)].row(pass.first_row + first, widths.keys_values), widths.keys_values}, nullptr,
                   {d_rows + widths.query, ld}, count, int(widths.keys_values));

  const bool norms = arch.has_head_norms();
  const auto* saved = norms ? act.heads_saved.row(first, widths.saved) : nullptr;
  const float* head_inverse = norms ? act.heads_inverse.row(first, widths.inverse) : nullptr;
  const int32_t* positions = arrays(pass).positions.data() + first;
  piece.rotate_backward({d_rows, ld}, parameters.query_norm, positions, {saved, widths.saved}, {head_inverse, widths.inverse}, heads);
  piece.rotate_backward({d_rows + widths.query, ld}, parameters.key_norm, positions,
                        {norms ? saved + widths.query : nullptr, widths.saved}, {norms ? head_inverse + heads : nullptr, widths.inverse},
                        arch.num_key_value_heads);
  // The gradients of values are as attention added them up.
  const size_t values = widths.query + widths.keys_values / 2;
  device_.round({d_rows + values, ld}, count, int(ld - values));
  if (arch.has_qkv_bias() && !frozen()) piece.bias_backward(parameters.qkv_bias, {d_rows, ld});

  const auto* x = input(layer).row(first, width);
  auto* normed = scratch.normed.room(rows * width);
  float* inverse = scratch.inverse.room(rows);
  device_.rms_norm(x, parameters.input_norm, normed, inverse, count);
  // Nothing that is trained lies below the first layer's adapters.
  auto* d_normed = layer == 0 && frozen() ? nullptr : scratch.d_normed.room(rows * width);
  linear_backward(layer, Part::qkv, piece, {d_rows, ld}, {normed, width}, d_normed);
  if (d_normed) piece.norm_backward(parameters.input_norm, x, inverse, d_normed, d_hidden_.row(first, width));
}

}  // namespace longhaul
