// One mini-batch of a batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pass/plan/forest.h"
#include "train/batch.h"

namespace longhaul {

/// Its forest and views of its targets. `target_rows` are rows of the forest; `target_samples` begin at
/// 0.
struct MiniBatch {
  Forest forest;
  std::vector<int32_t> target_rows;
  std::vector<int32_t> target_samples;
  std::span<const int32_t> target_tokens;
  std::span<const float> advantages;
  std::span<const float> old_logprobs, rollout_logprobs;  // either may be empty
};

/// The batch must be valid.
MiniBatch mini_batch_of(const Batch& batch, int index);

}  // namespace longhaul
