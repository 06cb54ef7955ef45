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

/// What a draw may choose from: of the `top_k` likeliest tokens (0: all), the fewest whose share of their probability reaches
/// `top_p`, in (0, 1]. Of equally likely tokens those with smaller ids come first.
struct Truncation {
  double top_p = 1;
  int top_k = 0;

  bool any() const { return top_p < 1 || top_k > 0; }
};

/// Throws std::invalid_argument that names the key, its value and what is allowed.
void validate(const Truncation& truncation);

/// Inverse CDF, in token order, of the truncated distribution. The log-prob is that of the whole distribution: what training
/// computes. Without truncation, `draw`.
Drawn draw_truncated(const float* logits, int vocab, float temperature, float uniform, const Truncation& truncation);

/// log softmax(logits / temperature)[token].
float logprob_of(const float* logits, int vocab, float temperature, int token);

}  // namespace longhaul
