// Updates on the device: passes over a forest, the gradient's norm, AdamW.
#pragma once

#include <vector>

#include "cuda/host/cuda_device.h"
#include "cuda/host/training/device_optimizer.h"
#include "pass/forest_pass.h"

extern template class longhaul::ForestPass<longhaul::cuda::CudaDevice>;

namespace longhaul::cuda {

class DeviceTraining final : public ForestPass<CudaDevice> {
 public:
  DeviceTraining(DevicePolicies& policies, Stream stream) : ForestPass(CudaDevice(policies, stream)), policies_(policies), stream_(stream) {}
  ~DeviceTraining() override { give_up(); }

  void prepare(const ForestPassSettings& settings, int most_rows) override;
  void check_gradient(const Oracle& oracle, std::uint64_t choice) override {
    device_.check().choose(device_.model(), oracle, choice, stream_);
  }
  double gradient_norm() override;
  void step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
            const OptimizerSettings& settings) override;
  void collect(Policy& next) override;
  void give_up() noexcept override;

 private:
  DevicePolicies& policies_;
  Stream stream_;
  DeviceOptimizer optimizer_;
};

}  // namespace longhaul::cuda
