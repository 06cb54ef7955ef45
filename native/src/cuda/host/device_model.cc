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
    adapter_scale_ = adapters->settings().scale();
    adapter_values_ = copied(adapters->values().data(), adapters->values().size(), stream);
  }
  list_linears();
}

const float* DeviceModel::at(const ParameterRange& range) const {
  return range.empty() ? nullptr : weights_->values.data() + range.offset;
}

void DeviceModel::list_linears() {
  linears_.resize(size_t(architecture().num_hidden_layers));
  for (size_t layer = 0; layer < linears_.size(); ++layer) {
    const LayerParameters& from = layout().layers[layer];
    const auto linear = [&](const ParameterRange& range) {
      DeviceLinear one;
      one.weight = at(range);
      one.outputs = range.rows;
      one.inputs = range.columns;
      one.weight_offset = range.offset;
      one.frozen = adapters_.has_value();
      return one;
    };
    DeviceLinears& to = linears_[layer];
    to = {linear(from.qkv), linear(from.output), linear(from.gate_up), linear(from.down)};
    to.qkv.bias = at(from.qkv_bias);
    if (!adapters_) continue;
    const LayerAdapters& adapters = adapters_->layers[layer];
    const auto attach = [&](DeviceLinear& one, const FusedAdapter& adapter) {
      if (adapter.empty()) return;
      one.adapter = &adapter;
      one.adapter_values = adapter_values_.data();
      one.adapter_scale = adapter_scale_;
    };
    attach(to.qkv, adapters.qkv);
    attach(to.output, adapters.output);
    attach(to.gate_up, adapters.gate_up);
    attach(to.down, adapters.down);
  }
}

void DeviceModel::rms_norm(const float* x, const ParameterRange& norm, float* y, float* inverse_rms, int rows, Stream stream) const {
  if (rows == 0) return;
  cuda::rms_norm({x, at(norm), float(architecture().rms_norm_eps), y, inverse_rms, rows, architecture().hidden_size}, stream);
}

Heads DeviceModel::heads(float* x, const ParameterRange& norm, const int32_t* positions, int rows, int count) const {
  return {x, size_t(architecture().qkv_width()), at(norm), positions, weights_->cos.data(), weights_->sin.data(), rows, count,
          architecture().head_dim};
}

void apply(const DeviceLinear& linear, ConstRows x, Rows y, int rows, bool accumulate, float* down, Stream stream) {
  if (rows == 0) return;
  product({ProductLayout::forward, x.data, x.ld, linear.weight, size_t(linear.inputs), y.data, y.ld, rows, linear.outputs, linear.inputs,
           accumulate},
          stream);
  const int width = linear.adapter_width();
  if (linear.adapter) {
    product({ProductLayout::forward, x.data, x.ld, linear.adapter_values + linear.adapter->a.offset, size_t(linear.inputs), down,
             size_t(width), rows, width, linear.inputs, false},
            stream);
    scale_rows({down, size_t(width)}, linear.adapter_scale, rows, width, stream);
  }
  if (linear.bias) add_bias(y, linear.bias, rows, linear.outputs, stream);
  if (!linear.adapter) return;
  // The chain of multiply-adds of each output element continues from the frozen matrix's result.
  for (size_t p = 0; p < linear.adapter->parts.size(); ++p) {
    const AdapterPart& part = linear.adapter->parts[p];
    const int rank = part.b.columns;
    product({ProductLayout::forward, down + p * size_t(rank), size_t(width), linear.adapter_values + part.b.offset, size_t(rank),
             y.data + part.first_output, y.ld, rows, part.b.rows, rank, true},
            stream);
  }
}

void apply_backward(const DeviceLinear& linear, ConstRows dy, float* dx, int rows, float* d_down, Stream stream) {
  if (rows == 0) return;
  const size_t inputs = size_t(linear.inputs);
  if (dx) product({ProductLayout::backward, dy.data, dy.ld, linear.weight, inputs, dx, inputs, rows, linear.inputs, linear.outputs, false}, stream);
  if (!linear.adapter) return;
  const int width = linear.adapter_width();
  for (size_t p = 0; p < linear.adapter->parts.size(); ++p) {
    const AdapterPart& part = linear.adapter->parts[p];
    const int rank = part.b.columns;
    product({ProductLayout::backward, dy.data + part.first_output, dy.ld, linear.adapter_values + part.b.offset, size_t(rank),
             d_down + p * size_t(rank), size_t(width), rows, rank, part.b.rows, false},
            stream);
  }
  scale_rows({d_down, size_t(width)}, linear.adapter_scale, rows, width, stream);
  if (dx)
    product({ProductLayout::backward, d_down, size_t(width), linear.adapter_values + linear.adapter->a.offset, inputs, dx, inputs, rows,
             linear.inputs, width, true},
            stream);
}

std::vector<GradientMatrix> gradient_matrices(const DeviceModel& model) {
  std::vector<GradientMatrix> all;
  for (int layer = 0; layer < model.architecture().num_hidden_layers; ++layer) {
    const DeviceLinears& linears = model.linears(layer);
    for (const auto& [name, linear] : {std::pair("qkv", &linears.qkv), {"output", &linears.output}, {"gate_up", &linears.gate_up}, {"down", &linears.down}}) {
      const std::string where = std::string(name) + " of layer " + std::to_string(layer);
      if (!linear->frozen) all.push_back({where, linear->weight_offset, linear->outputs, linear->inputs});
      if (!linear->adapter) continue;
      const FusedAdapter& adapter = *linear->adapter;
      all.push_back({"adapter A of " + where, adapter.a.offset, adapter.a.rows, adapter.a.columns});
      for (const AdapterPart& part : adapter.parts) all.push_back({"adapter B of " + where, part.b.offset, part.b.rows, part.b.columns});
    }
  }
  return all;
}

std::vector<GradientProduct> gradient_products(const DeviceLinear& linear, ConstRows dy, ConstRows x, const float* down, const float* d_down) {
  if (!linear.frozen) return {{linear.weight_offset, linear.outputs, linear.inputs, dy, x}};
  if (!linear.adapter) return {};
  const size_t width = size_t(linear.adapter_width());
  std::vector<GradientProduct> all{{linear.adapter->a.offset, int(width), linear.inputs, {d_down, width}, x}};
  for (size_t p = 0; p < linear.adapter->parts.size(); ++p) {
    const AdapterPart& part = linear.adapter->parts[p];
    all.push_back({part.b.offset, part.b.rows, part.b.columns, {dy.data + part.first_output, dy.ld}, {down + p * size_t(part.b.columns), width}});
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
