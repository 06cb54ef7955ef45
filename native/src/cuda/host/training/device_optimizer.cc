#include "cuda/host/training/device_optimizer.h"

#include <cmath>

#include "cuda/kernels/optimizer.h"

namespace longhaul::cuda {

namespace {

template <class T, class From>
DeviceArray<T> copied(const From& from, Stream stream) {
  DeviceArray<T> to(from.size());
  device_copy(to.data(), static_cast<const T*>(from.data()), from.size(), stream);
  return to;
}

template <class T, class To>
void copy_back(To& to, const DeviceArray<T>& from, Stream stream) {
  device_copy(to.data(), from.data(), from.size(), stream);
}

}  // namespace

DeviceMoments::DeviceMoments(const Moments& from, Stream stream)
    : format(from.format),
      first(copied<float>(from.first, stream)),
      second(copied<float>(from.second, stream)),
      first_scales(copied<float>(from.first_scales, stream)),
      second_scales(copied<float>(from.second_scales, stream)),
      first_codes(copied<int8_t>(from.first_codes, stream)),
      second_codes(copied<uint8_t>(from.second_codes, stream)) {}

void DeviceMoments::zero(Stream stream) {
  for (DeviceArray<float>* array : {&first, &second, &first_scales, &second_scales}) device_zero(array->data(), array->size(), stream);
  device_zero(first_codes.data(), first_codes.size(), stream);
  device_zero(second_codes.data(), second_codes.size(), stream);
}

void DeviceMoments::copy_to(Moments& to, Stream stream) const {
  copy_back(to.first, first, stream);
  copy_back(to.second, second, stream);
  copy_back(to.first_scales, first_scales, stream);
  copy_back(to.second_scales, second_scales, stream);
  copy_back(to.first_codes, first_codes, stream);
  copy_back(to.second_codes, second_codes, stream);
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
