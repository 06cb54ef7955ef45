#include "cuda/host/training/device_training.h"

#include "pass/backward.h"
#include "pass/driver.h"
#include "pass/forward.h"
#include "pass/head.h"

template class longhaul::ForestPass<longhaul::cuda::CudaDevice>;

namespace longhaul::cuda {

void DeviceTraining::prepare(const ForestPassSettings& settings, int most_rows) {
  give_up();
  ForestPass::prepare(settings, most_rows);
}

double DeviceTraining::gradient_norm() { return optimizer_.norm(*policy_, gradients_, stream_); }

void DeviceTraining::step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
                          const OptimizerSettings& settings) {
  const int64_t t = (reset_moments ? 0 : from.optimizer_steps) + 1;
  DeviceModel& model = policies_.model_of(from);
  // From here on the arrays are no longer those of `from`, even if the step fails half-way.
  policies_.stepped_to(next);
  if (reset_moments) policies_.moments().zero(stream_);
  optimizer_.step(from, model.trained().data(), policies_.moments(), gradients_, adam_step(t, norm, learning_rate, settings), stream_);
  next.optimizer_steps = t;
}

void DeviceTraining::collect(Policy& next) {
  DeviceModel& model = policies_.model_of(next);
  const std::span<float> values = next.trained();
  device_copy(values.data(), model.trained().data(), values.size(), stream_);
  policies_.moments().copy_to(next.moments(), stream_);
  next.changed();
}

void DeviceTraining::give_up() noexcept {
  device_.check().forget();
  policies_.forget_steps();
}

}  // namespace longhaul::cuda
