// Log-probs of given tokens under the policy, with the same bits as in sampling and training.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace longhaul {

/// log softmax(logits / temperature) of tokens[1..], each given the tokens before it: [tokens.size() − 1]. Throws
/// std::invalid_argument on fewer than two tokens, a token outside the vocabulary, or too many tokens. `advanced` is
/// called after each layer and each piece of the head.
std::vector<float> score(const Policy& policy, std::span<const int32_t> tokens, double temperature, Backend& backend,
                         const std::function<void()>& advanced = {});

}  // namespace longhaul
