#include "cuda/host/training/device_optimizer.h"

#include <cmath>

#include "cuda/kernels/optimizer.h"

namespace longhaul::cuda {

DeviceMoments::DeviceMoments(const Moments& from, Stream stream) : format(from.format) {
  each_array(from, *this, [stream](const auto& host, auto& device) {
    device = std::remove_reference_t<decltype(device)>(host.size());
    device_copy(device.data(), host.data(), host.size(), stream);
  });
}

void DeviceMoments::zero(Stream stream) {
  each_array(*this, *this, [stream](auto&, auto& device) { device_zero(device.data(), device.size(), stream); });
}

void DeviceMoments::copy_to(Moments& to, Stream stream) const {
  each_array(to, *this, [stream](auto& host, const auto& device) { device_copy(host.data(), device.data(), device.size(), stream); });
}

double DeviceOptimizer::norm(const Policy& policy, const float* gradients, Stream stream) {
  const std::vector<TrainedRange> ranges = policy.trained_ranges();
  std::size_t count = 0;
  for (const TrainedRange& range : ranges) count += square_blocks(range.size);
  float* totals = totals_.room(count);
  count = 0;
  for (const TrainedRange& range : ranges) {
    squares(gradients + range.offset, range.size, totals + count, stream);
    count += square_blocks(range.size);
  }
  std::vector<float> sums(count);
  device_copy(sums.data(), totals, count, stream);
  double total = 0;
  count = 0;
  for (const TrainedRange& range : ranges) {
    total = add_squares(total, sums.data() + count, range.size);
    count += square_blocks(range.size);
  }
  return std::sqrt(total);
}

void DeviceOptimizer::step(const Policy& policy, float* values, DeviceMoments& moments, const float* gradients, const ops::AdamStep& step,
                           Stream stream) {
  ops::AdamStep without_decay = step;
  without_decay.weight_decay = 0;
  const std::vector<TrainedRange> ranges = policy.trained_ranges();
  if (moments.format == MomentFormat::fp32) {
    for (const TrainedRange& range : ranges)
      adamw({range.decayed ? step : without_decay, values + range.offset, moments.first.data() + range.offset,
             moments.second.data() + range.offset, gradients + range.offset, range.size},
            stream);
    return;
  }
  const size_t size = policy.trained().size();
  std::vector<uint8_t> decayed((size + decay_unit - 1) / decay_unit);
  mark_decayed(ranges, 0, size, decayed.data());
  adamw_8bit({step, values, moments.first_codes.data(), moments.first_scales.data(), moments.second_codes.data(),
              moments.second_scales.data(), gradients, size, decayed_.put(decayed, stream)},
             stream);
}

}  // namespace longhaul::cuda
