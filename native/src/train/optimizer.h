// AdamW on what a policy trains, split over threads in fixed blocks; bits do not depend on the number of threads.
#pragma once

#include <span>

#include "base/thread_pool.h"
#include "model/policy.h"

namespace longhaul {

struct OptimizerSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double adam_eps = 1e-8;
  double weight_decay = 0;
  double max_grad_norm = 1;
};

/// √Σ g², in blocks of 16,384 values of each range, summed in order, in double.
double gradient_norm(const Policy& policy, std::span<const float> gradients, ThreadPool& pool);

/// Clips by the norm, steps moments and parameters (decoupled weight decay, Loshchilov & Hutter 2019), counts the step, and calls
/// next.changed. The step goes from `from` to `next`: a policy of the same kind, whose values and moments are overwritten, or `from`
/// itself. `reset_moments`: as if it were the first step.
void optimizer_step(Policy& next, const Policy& from, bool reset_moments, std::span<const float> gradients, double norm,
                    double learning_rate, const OptimizerSettings& settings, ThreadPool& pool);

}  // namespace longhaul
