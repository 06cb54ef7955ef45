#include "model/sample.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/exact_math.h"
#include "ops/ops.h"

namespace longhaul {

namespace {

constexpr Drawn nothing{-1, std::numeric_limits<float>::quiet_NaN()};

struct Candidate {
  int32_t token;
  double weight;  // exp((z − max) / temperature)
};

/// The tokens of a truncated distribution, in order of tokens.
class Candidates {
 public:
  Candidates(const float* logits, int vocab, float inverse_temperature, ops::RowNormalizer normalizer)
      : logits_(logits), inverse_temperature_(inverse_temperature), normalizer_(normalizer), order_(size_t(vocab)) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  std::vector<Candidate> truncated(const Truncation& truncation) {
    const size_t most = truncation.top_k > 0 ? std::min(size_t(truncation.top_k), order_.size()) : order_.size();
    std::vector<Candidate> kept;
    if (truncation.top_p < 1) {
      double whole = exact::exp(double(normalizer_.log_sum));
      if (most < order_.size()) {
        whole = 0;
        for (size_t i = 0; i < most; ++i) whole += ranked(i).weight;
      }
      const double wanted = truncation.top_p * whole;
      double before = 0;
      for (size_t i = 0; i < most && (i == 0 || before < wanted); ++i) {
        kept.push_back(ranked(i));
        before += kept.back().weight;
      }
    } else {
      for (size_t i = 0; i < most; ++i) kept.push_back(ranked(i));
    }
    std::sort(kept.begin(), kept.end(), [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    return kept;
  }

 private:
  /// The i-th likeliest token; asked for in order. Sorts no more of the vocabulary than is needed: mostly a few dozen tokens.
  Candidate ranked(size_t i) {
    if (i >= sorted_) {
      const size_t end = std::min(order_.size(), std::max<size_t>(64, sorted_ * 8));
      const auto likelier = [this](int32_t a, int32_t b) {
        return logits_[a] > logits_[b] || (logits_[a] == logits_[b] && a < b);
      };
      const auto first = order_.begin() + ptrdiff_t(sorted_), last = order_.begin() + ptrdiff_t(end);
      if (last != order_.end()) std::nth_element(first, last, order_.end(), likelier);
      std::sort(first, last, likelier);
      sorted_ = end;
    }
    const int32_t token = order_[i];
    return {token, exact::exp((double(logits_[token]) - double(normalizer_.max)) * double(inverse_temperature_))};
  }

  const float* logits_;
  float inverse_temperature_;
  ops::RowNormalizer normalizer_;
  std::vector<int32_t> order_;
  size_t sorted_ = 0;
};

}  // namespace

Drawn draw(const float* logits, int vocab, float temperature, float uniform) {
  const float inverse_temperature = 1.0f / temperature;
  ops::RowNormalizer normalizer;
  const int32_t token = ops::table().draw_row(logits, vocab, inverse_temperature, uniform, &normalizer);
  if (token < 0) return nothing;
  return {token, ops::row_logprob(logits[token], normalizer, inverse_temperature)};
}

void validate(const Truncation& truncation) {
  if (!(truncation.top_p > 0 && truncation.top_p <= 1)) {
    char shown[32];
    std::snprintf(shown, sizeof shown, "%.12g", truncation.top_p);
    throw std::invalid_argument(std::string("top_p is ") + shown + "; it must be above 0 and at most 1");
  }
  if (truncation.top_k < 0)
    throw std::invalid_argument("top_k is " + std::to_string(truncation.top_k) + "; it must be at least 1, or 0 for all tokens");
}

Drawn draw_truncated(const float* logits, int vocab, float temperature, float uniform, const Truncation& truncation) {
  if (!truncation.any()) return draw(logits, vocab, temperature, uniform);
  const float inverse_temperature = 1.0f / temperature;
  const ops::RowNormalizer normalizer = ops::table().normalize_row(logits, vocab, inverse_temperature);
  if (!std::isfinite(normalizer.max) || !std::isfinite(normalizer.log_sum)) return nothing;
  const std::vector<Candidate> kept = Candidates(logits, vocab, inverse_temperature, normalizer).truncated(truncation);
  double whole = 0;
  for (const Candidate& candidate : kept) whole += candidate.weight;
  // The middle of the uniform's cell, as in `draw`: 0 must not choose a token of vanishing probability.
  const double wanted = (double(uniform) + 0x1p-25) * whole;
  const Candidate* chosen = &kept.front();
  double before = 0;
  for (const Candidate& candidate : kept) {
    chosen = &candidate;
    before += candidate.weight;
    if (before > wanted) break;
  }
  return {chosen->token, ops::row_logprob(logits[chosen->token], normalizer, inverse_temperature)};
}

float logprob_of(const float* logits, int vocab, float temperature, int token) {
  const float inverse_temperature = 1.0f / temperature;
  return ops::row_logprob(logits[token], ops::table().normalize_row(logits, vocab, inverse_temperature),
                          inverse_temperature);
}

}  // namespace longhaul
