#include "cuda/host/training/device_training.h"

#include "pass/driver.h"
#include "pass/forward.h"
#include "pass/head.h"

template class longhaul::ForestPass<longhaul::cuda::CudaDevice>;

namespace longhaul::cuda {

void DeviceTraining::prepare(const ForestPassSettings& settings, int most_rows) {
  give_up();
  ForestPass::prepare(settings, most_rows);
}

Attention DeviceTraining::attention_of(const PassRange& pass, int layer, bool saving) {
  const Architecture& arch = architecture();
  LayerActivations<CudaDevice>& act = activations(layer);
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

void DeviceTraining::attend(const PassRange& pass, int layer, bool saving) {
  if (outputs(pass, layer) > 0) attention(attention_of(pass, layer, saving), stream_);
}

double DeviceTraining::gradient_norm() { return optimizer_.norm(*policy_, gradients_, stream_); }

void DeviceTraining::step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
                          const OptimizerSettings& settings) {
  const int64_t t = (reset_moments ? 0 : from.optimizer_steps) + 1;
  DeviceModel& model = policies_.model_of(from);
  // From here on the arrays are no longer those of `from`, even if the step fails half-way.
  policies_.stepped_to(next);
  if (reset_moments) policies_.moments().zero(stream_);
  optimizer_.step(from, model.trained().data(), policies_.moments(), gradients_, adam_step(t, norm, learning_rate, settings), stream_);
  next.optimizer_steps = t;
}

void DeviceTraining::collect(Policy& next) {
  DeviceModel& model = policies_.model_of(next);
  const std::span<float> values = next.trained();
  device_copy(values.data(), model.trained().data(), values.size(), stream_);
  policies_.moments().copy_to(next.moments(), stream_);
  next.changed();
}

void DeviceTraining::give_up() noexcept {
  check_.forget();
  policies_.forget_steps();
}

}  // namespace longhaul::cuda
