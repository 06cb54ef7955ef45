// The arrays of a policy in device memory, as they lie on the host, and its linear layers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/device/memory.h"
#include "cuda/kernels/norms.h"
#include "cuda/kernels/rows.h"
#include "model/policy.h"
#include "pass/linear.h"

namespace longhaul::cuda {

/// A model's weights and its rotary table.
struct DeviceWeights {
  DeviceWeights(const std::shared_ptr<const Weights>& from, Stream stream);

  /// What they were copied from. (A holder would make the host copy weights before it writes them.)
  std::weak_ptr<const Weights> source;
  Architecture architecture;
  ParameterLayout layout;
  DeviceArray<float> values;    // [layout.total]
  DeviceArray<float> cos, sin;  // [max_position_embeddings, head_dim / 2]
};

/// A weight matrix as it lies.
struct DeviceMatrix {
  const float* data = nullptr;
  int outputs = 0, inputs = 0;
};

using DeviceLinear = Linear<DeviceMatrix>;
using DeviceLinears = Linears<DeviceMatrix>;

class DeviceModel {
 public:
  /// Copies the policy's arrays; weights that are not trained are shared if `base` (which may be null) has them already.
  DeviceModel(const Policy& policy, const std::shared_ptr<DeviceWeights>& base, Stream stream);
  DeviceModel(DeviceModel&&) = delete;  // its linear layers point into it

  const Architecture& architecture() const { return weights_->architecture; }
  const ParameterLayout& layout() const { return weights_->layout; }
  const std::shared_ptr<DeviceWeights>& weights() const { return weights_; }
  bool frozen() const { return adapters_.has_value(); }
  /// Null if empty.
  const float* at(const ParameterRange& range) const;
  const DeviceLinears& linears(int layer) const { return linears_[size_t(layer)]; }
  /// The array that the optimizer steps: weights or adapters.
  DeviceArray<float>& trained() { return adapters_ ? adapter_values_ : weights_->values; }

  void rms_norm(const float* x, const ParameterRange& norm, float* y, float* inverse_rms, int rows, Stream stream) const;
  /// The heads of `x`, rows of queries or keys in fused rows of queries, keys and values.
  Heads heads(float* x, const ParameterRange& norm, const int32_t* positions, int rows, int count) const;

 private:
  std::shared_ptr<DeviceWeights> weights_;
  std::optional<AdapterLayout> adapters_;
  DeviceArray<float> adapter_values_;
  std::vector<DeviceLinears> linears_;
};

/// A matrix that is trained.
struct GradientMatrix {
  std::string name;  // "qkv of layer 3"
  size_t offset = 0;  // in the trained array
  int outputs = 0, inputs = 0;
};

/// Weights or adapters of all linear layers.
std::vector<GradientMatrix> gradient_matrices(const DeviceModel& model);

/// gradients[offset + …] [outputs, inputs] += dyᵀ·x.
struct GradientProduct {
  size_t offset;
  int outputs, inputs;
  ConstRows dy, x;
};

/// Rows go in order, as one chain.
void add_gradient(const GradientProduct& product, float* gradients, int rows, Stream stream);

}  // namespace longhaul::cuda
