#include "backend/cpu_training.h"

#include "pass/backward.h"
#include "pass/driver.h"
#include "pass/forward.h"
#include "pass/head.h"

namespace longhaul {

template class ForestPass<CpuDevice>;

void CpuTraining::prepare(const ForestPassSettings& settings, int most_rows) {
  ForestPass::prepare(settings, most_rows);
  device_.changed();
}

double CpuTraining::gradient_norm() { return longhaul::gradient_norm(*policy_, all_gradients(), device_.pool()); }

void CpuTraining::step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
                       const OptimizerSettings& settings) {
  optimizer_step(next, from, reset_moments, all_gradients(), norm, learning_rate, settings, device_.pool());
  device_.changed();
}

}  // namespace longhaul
