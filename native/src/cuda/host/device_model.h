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

/// One fused linear layer: y = x·Wᵀ + bias + scale·(x·Aᵀ)·Bᵀ.
struct DeviceLinear {
  const float* weight = nullptr;  // [outputs, inputs]
  int outputs = 0, inputs = 0;
  size_t weight_offset = 0;       // in the trained array, without adapters
  const float* bias = nullptr;
  bool frozen = false;
  const FusedAdapter* adapter = nullptr;
  const float* adapter_values = nullptr;
  float adapter_scale = 0;

  bool trained() const { return !frozen || adapter; }
  /// Columns of scale·(x·Aᵀ): parts · rank.
  int adapter_width() const { return adapter ? adapter->a.rows : 0; }
};

struct DeviceLinears {
  DeviceLinear qkv, output, gate_up, down;
};

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
  void list_linears();

  std::shared_ptr<DeviceWeights> weights_;
  std::optional<AdapterLayout> adapters_;
  float adapter_scale_ = 0;
  DeviceArray<float> adapter_values_;
  std::vector<DeviceLinears> linears_;
};

/// y (+)= …; `down` [rows, adapter_width] receives scale·(x·Aᵀ).
void apply(const DeviceLinear& linear, ConstRows x, Rows y, int rows, bool accumulate, float* down, Stream stream);

/// dx = dy·W + d_down·A unless dx is null; d_down [rows, adapter_width] = scale·dy·B if there is an adapter.
void apply_backward(const DeviceLinear& linear, ConstRows dy, float* dx, int rows, float* d_down, Stream stream);

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

/// What a linear layer adds to the gradients of what is trained: dW += dyᵀ·x, or dA += d_downᵀ·x and dB += dyᵀ·down.
std::vector<GradientProduct> gradient_products(const DeviceLinear& linear, ConstRows dy, ConstRows x, const float* down, const float* d_down);

/// Rows go in order, as one chain.
void add_gradient(const GradientProduct& product, float* gradients, int rows, Stream stream);

}  // namespace longhaul::cuda
