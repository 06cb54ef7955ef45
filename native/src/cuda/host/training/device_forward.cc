// The forward half of DeviceTraining: embedding, layers, final norm.
#include "cuda/host/training/device_training.h"

namespace longhaul::cuda {

void DeviceTraining::forward(const PassRange& pass, Keep keep, bool store_keys) {
  keep_ = keep;
  const Architecture& arch = architecture();
  const size_t count = size_t(arch.num_hidden_layers), width = size_t(arch.hidden_size);
  inputs_.resize(std::max(inputs_.size(), keep == Keep::nothing ? size_t(1) : count));
  layers_.resize(std::max(layers_.size(), keep == Keep::everything ? count : size_t(1)));
  gather_rows({model_->at(model_->layout().embedding), width}, arrays(pass).tokens.data(), {input(0).room(size_t(pass.rows) * width), width},
              pass.rows, arch.hidden_size, stream_);
  for (int layer = 0; layer < arch.num_hidden_layers; ++layer) {
    project(pass, layer, kept(layer), store_keys);
    transform(pass, layer, kept(layer), true);
    tell(advanced_);
  }
}

/// Computes queries, keys and values of a layer.
void DeviceTraining::project(const PassRange& pass, int layer, bool saving, bool store_keys) {
  const Architecture& arch = architecture();
  const DeviceLinear& linear = model_->linears(layer).qkv;
  Layer& act = at(layer);
  const int heads = arch.num_attention_heads, kv_heads = arch.num_key_value_heads;
  const size_t rows = size_t(pass.rows), width = size_t(arch.hidden_size), ld = size_t(arch.qkv_width()), query_width = size_t(arch.query_width()),
               ld_saved = query_width + size_t(arch.key_value_width()), ld_inverse = size_t(heads) + size_t(kv_heads);
  const float eps = float(arch.rms_norm_eps);
  float *normed = normed_.room(rows * width), *qkv = act.qkv.room(rows * ld);
  model_->rms_norm(input(layer).data(), parameters(layer).input_norm, normed, nullptr, pass.rows, stream_);
  apply(linear, {normed, width}, {qkv, ld}, pass.rows, false, act.qkv_down.room(rows * size_t(linear.adapter_width())), stream_);

  const bool saves = arch.has_head_norms() && saving;
  float* saved = saves ? act.saved.room(rows * ld_saved) : nullptr;
  float* inverse = saves ? act.inverse.room(rows * ld_inverse) : nullptr;
  const int32_t* positions = arrays(pass).positions.data();
  head_norm_rope({model_->heads(qkv, parameters(layer).query_norm, positions, pass.rows, heads), eps, saved, ld_saved, inverse, ld_inverse},
                 stream_);
  head_norm_rope({model_->heads(qkv + query_width, parameters(layer).key_norm, positions, pass.rows, kv_heads), eps,
                  saves ? saved + query_width : nullptr, ld_saved, saves ? inverse + heads : nullptr, ld_inverse},
                 stream_);
  if (!store_keys || !several_passes()) return;
  const size_t kept_width = size_t(2) * size_t(arch.key_value_width());
  keys_values_.resize(size_t(arch.num_hidden_layers));
  float* all = keys_values_[size_t(layer)].room(size_t(forest_->rows()) * kept_width);
  gather_rows({qkv + query_width, ld}, nullptr, {all + size_t(pass.first_row) * kept_width, kept_width}, pass.rows, int(kept_width), stream_);
}

Attention DeviceTraining::attention_of(const PassRange& pass, int layer, bool saving) {
  const Architecture& arch = architecture();
  Layer& act = at(layer);
  DeviceForestPass& arrays = this->arrays(pass);
  ForestQueries& queries = last(layer) ? arrays.outputs : arrays.all;
  const size_t ld = size_t(arch.qkv_width());
  // With a single pass, the keys and values of all rows lie beside their queries.
  const float* keys = several_passes() ? keys_values_[size_t(layer)].data() : act.qkv.data() + arch.query_width();
  Attention args{};
  args.qkv = act.qkv.data();
  args.ld_qkv = ld;
  args.query_rows = queries.rows.data();
  args.query_places = queries.places.data();
  args.past = chain_past(keys, several_passes() ? size_t(2) * size_t(arch.key_value_width()) : ld, arch.num_key_value_heads, arch.head_dim,
                         arrays.chains.data());
  args.tiles = queries.tile_room.data();
  args.tile_count = queries.tiles;
  args.tile_rows = many_tile_rows;
  args.heads = arch.num_attention_heads;
  args.kv_heads = arch.num_key_value_heads;
  args.head_dim = arch.head_dim;
  args.out = act.attention.room(size_t(queries.count) * size_t(arch.query_width()));
  args.log_sums = saving ? act.log_sums.room(size_t(queries.count) * size_t(arch.num_attention_heads)) : nullptr;
  return args;
}

/// Computes the layer's output from its queries, keys and values; in the last layer, only for outputs, and with the final norm. Without
/// `output_wanted`, computes only what the backward pass reads.
void DeviceTraining::transform(const PassRange& pass, int layer, bool saving, bool output_wanted) {
  const Architecture& arch = architecture();
  const DeviceLinears& linears = model_->linears(layer);
  Layer& act = at(layer);
  const int count = outputs(pass, layer);
  if (count == 0) return;
  const size_t rows = size_t(count), width = size_t(arch.hidden_size), ffn = size_t(arch.intermediate_size),
               query_width = size_t(arch.query_width());
  attention(attention_of(pass, layer, saving), stream_);
  float *middle = act.middle.room(rows * width), *normed = normed_.room(rows * width), *gate_up = act.gate_up.room(rows * 2 * ffn);
  const auto down = [&](DeviceRoom<float>& room, const DeviceLinear& linear) { return room.room(rows * size_t(linear.adapter_width())); };
  gather_rows({input(layer).data(), width}, last(layer) ? arrays(pass).output_rows.data() : nullptr, {middle, width}, count, arch.hidden_size,
              stream_);
  apply(linears.output, {act.attention.data(), query_width}, {middle, width}, count, true, down(act.output_down, linears.output), stream_);
  model_->rms_norm(middle, parameters(layer).post_norm, normed, nullptr, count, stream_);
  apply(linears.gate_up, {normed, width}, {gate_up, 2 * ffn}, count, false, down(act.gate_up_down, linears.gate_up), stream_);
  if (!output_wanted && linears.down.adapter_width() == 0) return;

  float* activated = activated_.room(rows * ffn);
  swiglu(gate_up, activated, count, arch.intermediate_size, stream_);
  DeviceRoom<float>& to = !output_wanted ? d_output_ : last(layer) ? last_hidden_ : input(layer + 1);
  float* output = to.room(rows * width);
  gather_rows({middle, width}, nullptr, {output, width}, count, arch.hidden_size, stream_);
  apply(linears.down, {activated, ffn}, {output, width}, count, true, down(act.down_down, linears.down), stream_);
  if (output_wanted && last(layer))
    model_->rms_norm(output, model_->layout().final_norm, final_normed_.room(rows * width), final_inverse_.room(rows), count, stream_);
}

}  // namespace longhaul::cuda
