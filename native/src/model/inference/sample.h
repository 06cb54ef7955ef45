// Draws a token from a row of logits and gives its log-prob, at a temperature. Training calls the same row functions.
#pragma once

#include <cstdint>

namespace longhaul {

/// How a token is drawn: `draw` with top_p = 1 and top_k = 0, else `draw_truncated`.
struct DrawRequest {
  float temperature = 1;
  float uniform = 0;
  double top_p = 1;
  int top_k = 0;
};

struct Drawn {
  /// −1 if the logits are not finite.
  int32_t token = -1;
  float logprob = 0;
};

/// logits [vocab]
Drawn draw(const float* logits, int vocab, const DrawRequest& request);

/// Inverse CDF of softmax(logits / temperature) in token order; `uniform` in [0, 1). logits [vocab], temperature > 0.
Drawn draw(const float* logits, int vocab, float temperature, float uniform);

/// Draws from a part of the distribution: of the `top_k` likeliest tokens (0: all), the smallest set that holds the share `top_p`, in (0,
/// 1], of their probability. Among equally likely tokens those with smaller ids come first. The log-prob is taken from the whole
/// distribution, as in training. With top_p = 1 and top_k = 0 it equals `draw`.
Drawn draw_truncated(const float* logits, int vocab, float temperature, float uniform, double top_p, int top_k);

}  // namespace longhaul
