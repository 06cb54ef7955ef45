// The expected log-prob of a sampled token, computed from a row of logits alone.
#pragma once

#include "ops/ops.h"

namespace longhaul::test {

/// log softmax(logits / temperature)[token].
inline float logprob_of(const float* logits, int vocab, float temperature, int token) {
  const float inverse_temperature = 1.0f / temperature;
  return ops::row_logprob(logits[token], ops::table().normalize_row(logits, vocab, inverse_temperature), inverse_temperature);
}

}  // namespace longhaul::test
