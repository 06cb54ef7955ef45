#include "cuda/host/device_model.h"

#include "cuda/kernels/products.h"

namespace longhaul::cuda {

namespace {

DeviceArray<float> copied(const float* from, size_t n, Stream stream) {
  DeviceArray<float> to(n);
  device_copy(to.data(), from, n, stream);
  return to;
}

}  // namespace

DeviceWeights::DeviceWeights(const std::shared_ptr<const Weights>& from, Stream stream)
    : source(from), architecture(from->architecture()), layout(from->layout()) {
  const size_t angles = size_t(architecture.max_position_embeddings) * size_t(architecture.head_dim / 2);
  values = copied(from->values().data(), from->values().size(), stream);
  cos = copied(from->rope().cos(), angles, stream);
  sin = copied(from->rope().sin(), angles, stream);
}

DeviceModel::DeviceModel(const Policy& policy, const std::shared_ptr<DeviceWeights>& base, Stream stream) {
  const bool trains_weights = !policy.adapters() && !policy.trained().empty();
  const bool shares = !trains_weights && base && base->source.lock() == policy.shared_weights();
  weights_ = shares ? base : std::make_shared<DeviceWeights>(policy.shared_weights(), stream);
  if (const Adapters* adapters = policy.adapters()) {
    adapters_ = adapters->layout();
    adapter_values_ = copied(adapters->values().data(), adapters->values().size(), stream);
  }
  const auto matrix = [](const float* values, const ParameterRange& range) {
    return DeviceMatrix{values + range.offset, range.rows, range.columns};
  };
  const auto adapter_of = [&](size_t layer, Part part) -> const FusedAdapter& { return part_of(adapters_->layers[layer], part); };
  linears_ = linears_of<DeviceMatrix>(
      layout(), adapters_ ? &*adapters_ : nullptr, adapters_ ? policy.adapters()->settings().scale() : 0,
      [&](size_t layer, Part part) { return matrix(weights_->values.data(), part_of(layout().layers[layer], part)); },
      [&](const ParameterRange& bias) { return at(bias); },
      [&](size_t layer, Part part) { return matrix(adapter_values_.data(), adapter_of(layer, part).a); },
      [&](size_t layer, Part part, size_t i) { return matrix(adapter_values_.data(), adapter_of(layer, part).parts[i].b); });
}

const float* DeviceModel::at(const ParameterRange& range) const {
  return range.empty() ? nullptr : weights_->values.data() + range.offset;
}

void DeviceModel::rms_norm(const float* x, const ParameterRange& norm, float* y, float* inverse_rms, int rows, Stream stream) const {
  if (rows == 0) return;
  cuda::rms_norm({x, at(norm), float(architecture().rms_norm_eps), y, inverse_rms, rows, architecture().hidden_size}, stream);
}

Heads DeviceModel::heads(float* x, const ParameterRange& norm, const int32_t* positions, int rows, int count) const {
  return {x, size_t(architecture().qkv_width()), at(norm), positions, weights_->cos.data(), weights_->sin.data(), rows, count,
          architecture().head_dim};
}

std::vector<GradientMatrix> gradient_matrices(const DeviceModel& model) {
  std::vector<GradientMatrix> all;
  for (int layer = 0; layer < model.architecture().num_hidden_layers; ++layer)
    for (const auto& [name, part] : {std::pair("qkv", Part::qkv), {"output", Part::output}, {"gate_up", Part::gate_up}, {"down", Part::down}}) {
      const std::string where = std::string(name) + " of layer " + std::to_string(layer);
      const DeviceLinear& linear = part_of(model.linears(layer), part);
      if (!linear.frozen) all.push_back({where, linear.range.offset, linear.outputs(), linear.inputs()});
      if (!linear.adapter) continue;
      const FusedAdapter& adapter = *linear.adapter;
      all.push_back({"adapter A of " + where, adapter.a.offset, adapter.a.rows, adapter.a.columns});
      for (const AdapterPart& part : adapter.parts) all.push_back({"adapter B of " + where, part.b.offset, part.b.rows, part.b.columns});
    }
  return all;
}

void add_gradient(const GradientProduct& product, float* gradients, int rows, Stream stream) {
  if (rows == 0) return;
  cuda::product({ProductLayout::gradient, product.dy.data, product.dy.ld, product.x.data, product.x.ld, gradients + product.offset,
                 size_t(product.inputs), product.outputs, product.inputs, rows, true},
                stream);
}

}  // namespace longhaul::cuda
