#include "model/sample.h"

#include <limits>

#include "ops/ops.h"

namespace longhaul {

Drawn draw(const float* logits, int vocab, float temperature, float uniform) {
  const float inverse_temperature = 1.0f / temperature;
  ops::RowNormalizer normalizer;
  const int32_t token = ops::table().draw_row(logits, vocab, inverse_temperature, uniform, &normalizer);
  if (token < 0) return {-1, std::numeric_limits<float>::quiet_NaN()};
  return {token, ops::row_logprob(logits[token], normalizer, inverse_temperature)};
}

float logprob_of(const float* logits, int vocab, float temperature, int token) {
  const float inverse_temperature = 1.0f / temperature;
  return ops::row_logprob(logits[token], ops::table().normalize_row(logits, vocab, inverse_temperature),
                          inverse_temperature);
}

}  // namespace longhaul
