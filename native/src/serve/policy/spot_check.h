// While a GPU trains: the oracle of its numerics computes a few log-probs of each update again. GPUs do err silently, so one that errs
// often is noticed. (A wrong value elsewhere in an update is not: an audit that replays the step finds it.)
// defines: require_same_logprobs
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "train/mini_batch.h"

namespace longhaul {

/// Computes log-probs on the oracle: of the target that `choice` selects, and of all targets on the way to it from the root. `logprobs`
/// [targets of `mini`] are the device's; `policy` is the one that computed them. Throws WrongValue at the first one with other bits.
void require_same_logprobs(const Policy& policy, const MiniBatch& mini, std::span<const float> logprobs, double temperature,
                           std::uint64_t choice, const Oracle& oracle, ThreadPool& pool, const OnAdvance& advanced);

}  // namespace longhaul
