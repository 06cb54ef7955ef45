// AdamW on the trained part of a policy. Threads share fixed blocks, so the bits do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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
double gradient_norm(const Policy& policy, const float* gradients, ThreadPool& pool);

/// 8-bit moments: a block of 256 values may span two matrices, so decay is given for every 16 values (all widths are multiples of 16).
inline constexpr size_t decay_unit = 16;

/// Marks, for every 16 values of [first, last) of the trained array, whether they decay.
void mark_decayed(const std::vector<TrainedRange>& ranges, size_t first, size_t last, uint8_t* decayed);

/// The factors of step `t`, which counts from 1: learning rate, clipping by the norm, bias corrections.
ops::AdamStep adam_step(int64_t t, double norm, double learning_rate, const OptimizerSettings& settings);

/// Updates moments and parameters (decoupled weight decay, Loshchilov & Hutter 2019). Reads `from` and writes `next`: a policy of the same
/// kind, or `from` itself. `reset_moments`: as if this were the first step.
void optimizer_step(Policy& next, const Policy& from, bool reset_moments, const float* gradients, const ops::AdamStep& adam, ThreadPool& pool);

}  // namespace longhaul
