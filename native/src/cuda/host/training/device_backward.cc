// The backward half of DeviceTraining. Within a layer, gradients go over pieces of 512 rows from the last to the first.
#include "cuda/host/training/device_training.h"

namespace longhaul::cuda {

void DeviceTraining::prepare_backward(const PassRange& pass) {
  if (&pass != &plan_.passes.back()) return;
  // The last pass is the first to go backward: sums over all passes start at zero.
  const Architecture& arch = architecture();
  if (several_passes()) {
    d_keys_values_.resize(size_t(arch.num_hidden_layers));
    for (Buffer<float>& layer : d_keys_values_)
      layer.zeros(size_t(forest_->rows()) * 2 * size_t(arch.key_value_width()), stream_);
  }
  if (!frozen()) d_embedding_.zeros(plan_.distinct_tokens.size() * size_t(arch.hidden_size), stream_);
}

void DeviceTraining::drop_backward() {
  for (Buffer<float>* buffer :
       {&inverse_, &d_hidden_, &d_scattered_, &d_activated_, &d_gate_up_, &d_normed_, &d_attention_, &d_qkv_, &pulls_})
    *buffer = {};
  d_keys_values_.clear();
}

void DeviceTraining::sum_embedding_rows(const PassRange& pass) {
  const size_t width = size_t(architecture().hidden_size);
  DeviceForestPass& arrays = this->arrays(pass);
  add_rows({d_hidden_.data(), width}, {arrays.token_starts.data(), arrays.token_rows.data(), arrays.tokens_here}, arrays.token_slots.data(),
           {d_embedding_.data(), width}, architecture().hidden_size, stream_);
}

void DeviceTraining::add_embedding_gradient() {
  const size_t width = size_t(architecture().hidden_size);
  std::vector<int32_t> starts(plan_.distinct_tokens.size() + 1);
  for (size_t i = 0; i < starts.size(); ++i) starts[i] = int32_t(i);
  Buffer<int32_t> rows, tokens;
  add_rows({d_embedding_.data(), width}, {rows.put(starts, stream_), nullptr, int(plan_.distinct_tokens.size())},
           tokens.put(plan_.distinct_tokens, stream_), {gradients_ + policy_->layout().embedding.offset, width},
           architecture().hidden_size, stream_);
}

/// On entry `d_hidden_` holds the gradient of the layer's output (in the last layer: nothing yet); on return, the gradient of its input.
void DeviceTraining::backward_layer(const PassRange& pass, int layer) {
  transform_backward(pass, layer);
  // With adapters, only the first layer's qkv adapter is trained below this attention.
  if (layer == 0 && frozen() && !device_.linears(layer).qkv.trained()) return;
  attend_backward(pass, layer);
  project_backward(pass, layer);
}

/// dx += …, and the norm's weight gradient.
void DeviceTraining::norm_backward(const std::vector<RowRange>& pieces, const float* x, const ParameterRange& norm,
                                   const float* inverse, const float* dy, float* dx) {
  const size_t width = size_t(architecture().hidden_size);
  const bool trained = !frozen();
  for (const RowRange& piece : pieces) {
    const size_t at = size_t(piece.first) * width;
    rms_norm_backward({x + at, device_.model().at(norm), inverse + piece.first, dy + at, dx + at, trained ? gradients_ + norm.offset : nullptr,
                       trained ? blocks_.room(size_t(sum_blocks(piece.count)) * width) : nullptr, piece.count, architecture().hidden_size},
                      stream_);
  }
}

void DeviceTraining::linear_gradients(const std::vector<RowRange>& pieces, const DeviceLinear& linear, ConstRows dy, ConstRows x,
                                      const float* down, const float* d_down) {
  const size_t width = size_t(linear.adapter_width());
  for (const RowRange& piece : pieces) {
    const size_t first = size_t(piece.first);
    for (const GradientProduct& product : gradient_products(linear, {dy.data + first * dy.ld, dy.ld}, {x.data + first * x.ld, x.ld},
                                                            down + first * width, d_down + first * width)) {
      add_gradient(product, gradients_, piece.count, stream_);
      if (piece.count > 0) check_.add(product, piece.count);
    }
  }
}

/// Computes the gradient of the layer's attention from the gradient of its output (in the last layer: from the head's gradient).
void DeviceTraining::transform_backward(const PassRange& pass, int layer) {
  const Architecture& arch = architecture();
  const DeviceLinears& linears = device_.linears(layer);
  DeviceForestPass& arrays = this->arrays(pass);
  LayerActivations<CudaDevice>& act = activations(layer);
  const int count = outputs(pass, layer), hidden = arch.hidden_size, ffn = arch.intermediate_size;
  if (count == 0) return;
  const std::vector<RowRange>& pieces = last(layer) ? arrays.output_pieces : arrays.row_pieces;
  const size_t rows = size_t(count), width = size_t(hidden), query_width = size_t(arch.query_width());
  float *d_normed = d_normed_.room(rows * width), *normed = device_.scratch().normed.room(rows * width), *inverse = inverse_.room(rows);

  if (last(layer)) {
    sum_rows({d_targets_.data(), width}, {arrays.output_starts.data(), arrays.output_targets.data(), count}, {d_normed, width}, hidden, stream_);
    norm_backward(pieces, last_hidden_.data(), policy_->layout().final_norm, final_inverse_.data(), d_normed, d_hidden_.zeros(rows * width, stream_));
  }
  float *d_hidden = d_hidden_.data(), *activated = device_.scratch().activated.room(rows * size_t(ffn)), *d_activated = d_activated_.room(rows * size_t(ffn)),
        *d_gate_up = d_gate_up_.room(rows * 2 * size_t(ffn));
  const auto d_down = [&](const DeviceLinear& linear) { return device_.scratch().adapter_down.room(rows * size_t(linear.adapter_width())); };

  swiglu(act.gate_up.data(), activated, count, ffn, stream_);
  apply_backward(linears.down, {d_hidden, width}, d_activated, count, d_down(linears.down), stream_);
  linear_gradients(pieces, linears.down, {d_hidden, width}, {activated, size_t(ffn)}, act.adapter_down.down.data(), device_.scratch().adapter_down.data());
  swiglu_backward(act.gate_up.data(), d_activated, d_gate_up, count, ffn, stream_);

  device_.rms_norm(act.middle.data(), parameters(layer).post_norm, normed, inverse, count);
  apply_backward(linears.gate_up, {d_gate_up, size_t(2) * size_t(ffn)}, d_normed, count, d_down(linears.gate_up), stream_);
  linear_gradients(pieces, linears.gate_up, {d_gate_up, size_t(2) * size_t(ffn)}, {normed, width}, act.adapter_down.gate_up.data(), device_.scratch().adapter_down.data());
  norm_backward(pieces, act.middle.data(), parameters(layer).post_norm, inverse, d_normed, d_hidden);

  apply_backward(linears.output, {d_hidden, width}, d_attention_.room(rows * query_width), count, d_down(linears.output), stream_);
  linear_gradients(pieces, linears.output, {d_hidden, width}, {act.attention.data(), query_width}, act.adapter_down.output.data(), device_.scratch().adapter_down.data());
}

/// Gradients of queries, keys and values.
void DeviceTraining::attend_backward(const PassRange& pass, int layer) {
  const Architecture& arch = architecture();
  DeviceForestPass& arrays = this->arrays(pass);
  const size_t rows = size_t(pass.rows), width = size_t(arch.hidden_size);
  float* d_qkv = d_qkv_.zeros(rows * size_t(arch.qkv_width()), stream_);
  if (last(layer)) {
    float* all = d_scattered_.zeros(rows * width, stream_);
    if (pass.outputs > 0) scatter_rows({d_hidden_.data(), width}, arrays.output_rows.data(), {all, width}, pass.outputs, arch.hidden_size, stream_);
    d_hidden_.swap(d_scattered_);
  }
  ForestQueries& queries = last(layer) ? arrays.outputs : arrays.all;
  if (queries.count == 0) return;
  AttentionBackward args{};
  args.forward = attention_of(pass, layer, true);
  args.d_out = d_attention_.data();
  args.pulls = pulls_.room(size_t(queries.count) * size_t(arch.num_attention_heads));
  args.d_queries = d_qkv;
  args.d_keys_values = several_passes() ? d_keys_values_[size_t(layer)].data() : d_qkv + arch.query_width();
  args.key_tiles = queries.key_tile_room.data();
  args.key_tile_count = queries.key_tiles;
  args.readers = queries.readers.data();
  attention_backward(args, stream_);
}

/// Computes the gradient of the layer's input from the gradients of queries, keys and values.
void DeviceTraining::project_backward(const PassRange& pass, int layer) {
  const Architecture& arch = architecture();
  const LayerParameters& parameters = this->parameters(layer);
  const DeviceLinear& linear = device_.linears(layer).qkv;
  DeviceForestPass& arrays = this->arrays(pass);
  LayerActivations<CudaDevice>& act = activations(layer);
  const int heads = arch.num_attention_heads, kv_heads = arch.num_key_value_heads;
  const size_t rows = size_t(pass.rows), width = size_t(arch.hidden_size), ld = size_t(arch.qkv_width()), query_width = size_t(arch.query_width()),
               kept_width = size_t(2) * size_t(arch.key_value_width()), ld_saved = query_width + kept_width / 2,
               ld_inverse = size_t(heads) + size_t(kv_heads), head_dim = size_t(arch.head_dim);
  const bool norms = arch.has_head_norms(), trained = !frozen();
  float* d_qkv = d_qkv_.data();
  if (several_passes())
    gather_rows({d_keys_values_[size_t(layer)].data() + size_t(pass.first_row) * kept_width, kept_width}, nullptr, {d_qkv + query_width, ld},
                pass.rows, int(kept_width), stream_);

  for (const RowRange& piece : arrays.row_pieces) {
    const size_t first = size_t(piece.first);
    const auto back = [&](size_t column, const ParameterRange& norm, size_t first_head, int count) {
      float* blocks = norms && trained ? blocks_.room(size_t(sum_blocks(piece.count)) * head_dim) : nullptr;
      head_norm_rope_backward(
          {device_.model().heads(d_qkv + first * ld + column, norm, arrays.positions.data() + piece.first, piece.count, count),
           norms ? act.heads_saved.data() + first * ld_saved + column : nullptr, ld_saved,
           norms ? act.heads_inverse.data() + first * ld_inverse + first_head : nullptr, ld_inverse,
           norms && trained ? gradients_ + norm.offset : nullptr, blocks},
          stream_);
    };
    back(0, parameters.query_norm, 0, heads);
    back(query_width, parameters.key_norm, size_t(heads), kv_heads);
    if (arch.has_qkv_bias() && trained)
      column_sums({d_qkv + first * ld, ld}, piece.count, blocks_.room(size_t(sum_blocks(piece.count)) * ld),
                  gradients_ + parameters.qkv_bias.offset, int(ld), stream_);
  }

  float *normed = device_.scratch().normed.room(rows * width), *inverse = inverse_.room(rows), *d_down = device_.scratch().adapter_down.room(rows * size_t(linear.adapter_width()));
  device_.rms_norm(input(layer).data(), parameters.input_norm, normed, inverse, pass.rows);
  // Nothing that is trained lies below the first layer's adapters.
  float* d_normed = layer == 0 && frozen() ? nullptr : d_normed_.room(rows * width);
  apply_backward(linear, {d_qkv, ld}, d_normed, pass.rows, d_down, stream_);
  linear_gradients(arrays.row_pieces, linear, {d_qkv, ld}, {normed, width}, act.adapter_down.qkv.data(), d_down);
  if (d_normed) norm_backward(arrays.row_pieces, input(layer).data(), parameters.input_norm, inverse, d_normed, d_hidden_.data());
}

}  // namespace longhaul::cuda
