// From a row of logits to a token and its log-prob at a temperature. Training calls the same row functions.
#pragma once

#include <cstdint>

namespace longhaul {

struct Drawn {
  /// −1 where the logits are not finite.
  int32_t token = -1;
  float logprob = 0;
};

/// Inverse CDF of softmax(logits / temperature) in token order; `uniform` in [0, 1). logits [vocab], temperature > 0.
Drawn draw(const float* logits, int vocab, float temperature, float uniform);

/// log softmax(logits / temperature)[token].
float logprob_of(const float* logits, int vocab, float temperature, int token);

}  // namespace longhaul
