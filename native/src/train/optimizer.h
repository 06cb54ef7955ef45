// AdamW on the trained part of a policy. Threads share fixed blocks, so the bits do not depend on the number of threads.
#pragma once

#include <span>

#include "base/thread_pool.h"
#include "model/policy.h"
#include "ops/ops.h"

namespace longhaul {

struct OptimizerSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double adam_eps = 1e-8;
  double weight_decay = 0;
  double max_grad_norm = 1;
};

/// √Σ g²: sums of blocks of 16,384 values of each range, added in order, in double.
double gradient_norm(const Policy& policy, std::span<const float> gradients, ThreadPool& pool);

/// The factors of step `t`, which counts from 1: learning rate, clipping by the norm, bias corrections.
ops::AdamStep adam_step(int64_t t, double norm, double learning_rate, const OptimizerSettings& settings);

/// Clips by the norm, updates moments and parameters (decoupled weight decay, Loshchilov & Hutter 2019), and counts the step. Reads `from` and writes `next`: a policy of the same kind, or `from` itself. `reset_moments`: as if this were the first
/// step.
void optimizer_step(Policy& next, const Policy& from, bool reset_moments, std::span<const float> gradients, double norm,
                    double learning_rate, const OptimizerSettings& settings, ThreadPool& pool);

}  // namespace longhaul
