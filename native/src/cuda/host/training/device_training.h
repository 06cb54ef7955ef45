// Updates on the device: what passes leave to it, the gradient's norm, AdamW.
#pragma once

#include <vector>

#include "cuda/host/cuda_device.h"
#include "cuda/host/training/device_optimizer.h"
#include "cuda/host/training/gradient_check.h"
#include "pass/forest_pass.h"

extern template class longhaul::ForestPass<longhaul::cuda::CudaDevice>;

namespace longhaul::cuda {

class DeviceTraining final : public ForestPass<CudaDevice> {
 public:
  DeviceTraining(DevicePolicies& policies, Stream stream) : ForestPass(CudaDevice(policies, stream)), policies_(policies), stream_(stream) {}
  ~DeviceTraining() override { give_up(); }

  void prepare(const ForestPassSettings& settings, int most_rows) override;
  void check_gradient(std::uint64_t choice) override { check_.choose(device_.model(), choice, stream_); }
  double gradient_norm() override;
  void step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
            const OptimizerSettings& settings) override;
  void collect(Policy& next) override;
  void give_up() noexcept override;

 private:
  void attend(const PassRange& pass, int layer, bool saving) override;
  Attention attention_of(const PassRange& pass, int layer, bool saving);

  // device_backward.cc
  void prepare_gradient() override {}
  void prepare_backward(const PassRange& pass) override;
  void backward_layer(const PassRange& pass, int layer) override;
  void sum_embedding_rows(const PassRange& pass) override;
  void add_embedding_gradient() override;
  void check_gradients() override { check_.finish(gradients_); }
  void drop_backward() override;
  void transform_backward(const PassRange& pass, int layer);
  void attend_backward(const PassRange& pass, int layer);
  void project_backward(const PassRange& pass, int layer);
  void norm_backward(const std::vector<RowRange>& pieces, const float* x, const ParameterRange& norm, const float* inverse, const float* dy,
                     float* dx);
  void linear_gradients(const std::vector<RowRange>& pieces, const DeviceLinear& linear, ConstRows dy, ConstRows x, const float* down,
                        const float* d_down);

  DevicePolicies& policies_;
  Stream stream_;
  Buffer<float> inverse_, d_hidden_, d_scattered_, d_activated_, d_gate_up_, d_normed_, d_attention_, d_qkv_, pulls_, blocks_, d_embedding_;
  std::vector<Buffer<float>> d_keys_values_;  // as keys_values_
  DeviceOptimizer optimizer_;
  GradientCheck check_;
};

}  // namespace longhaul::cuda
