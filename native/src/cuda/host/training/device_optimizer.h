// AdamW on the device: the held policy's moments, steps in place, the gradient's norm.
#pragma once

#include <vector>

#include "cuda/host/device_model.h"
#include "cuda/host/buffer.h"
#include "model/optimizer.h"

namespace longhaul::cuda {

/// AdamW's moments in device memory: one of the two formats.
struct DeviceMoments {
  MomentFormat format = MomentFormat::fp32;
  DeviceArray<float> first, second, first_scales, second_scales;
  DeviceArray<int8_t> first_codes;
  DeviceArray<uint8_t> second_codes;

  DeviceMoments() = default;
  DeviceMoments(const Moments& from, Stream stream);
  void zero(Stream stream);
  void copy_to(Moments& to, Stream stream) const;
};

/// Calls work(array of the host, array of the device) for each array of moments.
void each_array(auto& host, auto& device, auto&& work) {
  work(host.first, device.first);
  work(host.second, device.second);
  work(host.first_codes, device.first_codes);
  work(host.second_codes, device.second_codes);
  work(host.first_scales, device.first_scales);
  work(host.second_scales, device.second_scales);
}

class DeviceOptimizer {
 public:
  /// √Σ g², as `gradient_norm` of model/optimizer.h.
  double norm(const Policy& policy, const float* gradients, Stream stream);
  /// Steps `values` in place. `policy` names the trained ranges.
  void step(const Policy& policy, float* values, DeviceMoments& moments, const float* gradients, const ops::AdamStep& step, Stream stream);

 private:
  Buffer<float> totals_;
  Buffer<uint8_t> decayed_;
};

}  // namespace longhaul::cuda
