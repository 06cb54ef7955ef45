// Log-probs of given tokens under the policy: same bits as sampling and training see.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "model/policy.h"

namespace longhaul {

/// log softmax(logits / temperature) of tokens[1..], each given what precedes it: [tokens.size() − 1].
/// Throws std::invalid_argument on fewer than two tokens, a token out of the vocabulary, or too many tokens.
/// `advanced` is called as the work gets on, layer by layer.
std::vector<float> score(const Policy& policy, std::span<const int32_t> tokens, double temperature, ThreadPool& pool,
                         const std::function<void()>& advanced = {});

}  // namespace longhaul
