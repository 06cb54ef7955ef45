// Updates on the device: forward and backward over a forest, the gradient's norm, AdamW. The same passes, pieces and orders as on the CPU
// (train/forest), with whole passes instead of tiles.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "cuda/host/training/device_forest.h"
#include "cuda/host/training/device_optimizer.h"
#include "cuda/host/training/gradient_check.h"
#include "cuda/kernels/head.h"

namespace longhaul::cuda {

/// The policies that a backend has on its device.
class DevicePolicies {
 public:
  virtual ~DevicePolicies() = default;
  /// Copies the held policy if the device has other values. Throws std::logic_error if the policy is not held.
  virtual DeviceModel& model_of(const Policy& policy) = 0;
  /// The held policy's moments.
  virtual DeviceMoments& moments() = 0;
  /// From now on the held model is this policy, which has been stepped to.
  virtual void stepped_to(const Policy& next) = 0;
  /// Forgets values that are not the held policy's. They are copied again when they are needed.
  virtual void forget_steps() noexcept = 0;
};

class DeviceTraining final : public Training {
 public:
  DeviceTraining(DevicePolicies& policies, Stream stream) : policies_(policies), stream_(stream) {}
  ~DeviceTraining() override { give_up(); }

  void prepare(const ForestPassSettings& settings, int most_rows) override;
  void begin(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows, std::span<const int32_t> target_tokens,
             float temperature, OnAdvance advanced, OnAdvance passed) override;
  void logprobs(std::span<float> out) override;
  void check_gradient(std::uint64_t choice) override { check_.choose(*model_, choice, stream_); }
  void gradient(const Derive& derive, bool trains_entropy) override;
  double gradient_norm() override;
  void step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
            const OptimizerSettings& settings) override;
  void collect(Policy& next) override;
  void give_up() noexcept override;

 private:
  /// The activations that a forward pass keeps: none; each layer's input and all of the last layer's; or all.
  enum class Keep { nothing, inputs, everything };

  struct Layer {
    DeviceRoom<float> qkv, saved, inverse, attention, log_sums, middle, gate_up;
    DeviceRoom<float> qkv_down, output_down, gate_up_down, down_down;  // scale · x·Aᵀ
  };

  const Architecture& architecture() const { return model_->architecture(); }
  const LayerParameters& parameters(int layer) const { return model_->layout().layers[size_t(layer)]; }
  bool last(int layer) const { return layer + 1 == architecture().num_hidden_layers; }
  bool several_passes() const { return plan_.passes.size() > 1; }
  bool kept(int layer) const { return keep_ == Keep::everything || (keep_ == Keep::inputs && last(layer)); }
  Layer& at(int layer) { return layers_[keep_ == Keep::everything ? size_t(layer) : 0]; }
  DeviceRoom<float>& input(int layer) { return inputs_[keep_ == Keep::nothing ? 0 : size_t(layer)]; }
  int outputs(const PassRange& pass, int layer) const { return last(layer) ? pass.outputs : pass.rows; }
  static void tell(const OnAdvance& whom) {
    if (whom) whom();
  }

  void drop_activations();

  // device_forward.cc
  void forward(const PassRange& pass, Keep keep, bool store_keys);
  void project(const PassRange& pass, int layer, bool saving, bool store_keys);
  Attention attention_of(const PassRange& pass, int layer, bool saving);
  void transform(const PassRange& pass, int layer, bool saving, bool output_wanted);

  // device_head.cc
  int head_rows() const;
  void compute_logits(const PassRange& pass, int first, int count);
  void head_logprobs(const PassRange& pass, bool keep_logits);
  void head_gradient(const PassRange& pass);

  // device_backward.cc
  void prepare_backward(const PassRange& pass);
  void backward(const PassRange& pass);
  void backward_layer(const PassRange& pass, int layer);
  void transform_backward(const PassRange& pass, int layer);
  void attend_backward(const PassRange& pass, int layer);
  void project_backward(const PassRange& pass, int layer);
  void norm_backward(const std::vector<DeviceForestPass::Piece>& pieces, const float* x, const ParameterRange& norm, const float* inverse,
                     const float* dy, float* dx);
  void linear_gradients(const std::vector<DeviceForestPass::Piece>& pieces, const DeviceLinear& linear, ConstRows dy, ConstRows x,
                        const float* down, const float* d_down);
  void add_embedding_gradient();
  DeviceForestPass& arrays(const PassRange& pass) { return passes_[size_t(&pass - plan_.passes.data())]; }

  DevicePolicies& policies_;
  Stream stream_;
  ForestPassSettings settings_;
  /// Rows of the largest pass that there has been memory for.
  int held_rows_ = 0;

  // Set by `begin`.
  DeviceModel* model_ = nullptr;
  const Policy* policy_ = nullptr;
  const Forest* forest_ = nullptr;
  std::span<const int32_t> target_tokens_;
  float inverse_temperature_ = 1;
  OnAdvance advanced_, passed_;
  PassPlan plan_;
  std::vector<DeviceForestPass> passes_;

  // Forward.
  Keep keep_ = Keep::nothing;
  bool with_entropy_ = false, trains_entropy_ = false, logits_kept_ = false;
  std::vector<DeviceRoom<float>> inputs_;
  std::vector<Layer> layers_;
  std::vector<DeviceRoom<float>> keys_values_, d_keys_values_;  // [layers], all rows of the forest; only with several passes
  DeviceRoom<float> normed_, activated_, last_hidden_, final_normed_, final_inverse_, inverse_;

  // Head; on the host in the order in which the targets were given.
  DeviceRoom<float> head_rows_, logits_, d_targets_, row_logprobs_, row_entropies_, scales_, entropy_scales_;
  DeviceRoom<ops::RowNormalizer> normalizers_;  // [all targets], in canonical order
  std::vector<float> logprobs_, entropies_;
  std::vector<double> derivatives_, entropy_derivatives_;

  // Backward.
  DeviceRoom<float> gradients_, d_hidden_, d_scattered_, d_output_, d_activated_, d_gate_up_, d_normed_, d_attention_, d_qkv_, d_down_, pulls_,
      blocks_, d_embedding_;
  DeviceOptimizer optimizer_;
  GradientCheck check_;
};

}  // namespace longhaul::cuda
