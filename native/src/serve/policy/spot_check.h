// While a GPU trains: the host computes a few log-probs of each update again. GPUs do err silently, and their bits are the CPU's, so one
// that errs is noticed before its update is applied.
// defines: require_same_logprobs
#pragma once

#include <span>
#include <string>

#include "backend/backend.h"
#include "train/forest/forest.h"

namespace longhaul {

/// Computes log-probs on the CPU: of a target that the step id chooses, and of all targets on the way to it from the root. `logprobs`
/// [targets of `mini`] are the device's; `policy` is the one that computed them. Throws WrongValue at the first one with other bits.
void require_same_logprobs(const Policy& policy, const MiniBatch& mini, std::span<const float> logprobs, double temperature,
                           const std::string& step_id, ThreadPool& pool, const OnAdvance& advanced);

}  // namespace longhaul
