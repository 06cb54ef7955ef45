#include "model/inference/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
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

/// The tokens of a row, the likeliest first. Sorts only the part of the vocabulary that is read, mostly a few dozen
/// tokens.
class Ranking {
 public:
  Ranking(const float* logits, int vocab, float inverse_temperature, ops::RowNormalizer normalizer)
      : logits_(logits), inverse_temperature_(inverse_temperature), max_(normalizer.max), order_(size_t(vocab)) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  size_t size() const { return order_.size(); }

  Candidate operator[](size_t rank) {
    while (rank >= sorted_) sort_more();
    const int32_t token = order_[rank];
    return {token, exact::exp((double(logits_[token]) - double(max_)) * double(inverse_temperature_))};
  }

 private:
  void sort_more() {
    const auto likelier = [this](int32_t a, int32_t b) {
      return logits_[a] > logits_[b] || (logits_[a] == logits_[b] && a < b);
    };
    const size_t end = std::min(order_.size(), std::max<size_t>(64, sorted_ * 8));
    const auto first = order_.begin() + std::ptrdiff_t(sorted_), last = order_.begin() + std::ptrdiff_t(end);
    if (last != order_.end()) std::nth_element(first, last, order_.end(), likelier);
    std::sort(first, last, likelier);
    sorted_ = end;
  }

  const float* logits_;
  float inverse_temperature_;
  float max_;
  std::vector<int32_t> order_;
  size_t sorted_ = 0;
};

/// The tokens that a draw may choose from, in order of token id.
std::vector<Candidate> truncated(Ranking& ranking, ops::RowNormalizer normalizer, double top_p, int top_k) {
  const size_t most = top_k > 0 ? std::min(size_t(top_k), ranking.size()) : ranking.size();
  double whole = 0;
  if (most == ranking.size()) {
    whole = exact::exp(double(normalizer.log_sum));
  } else {
    for (size_t i = 0; i < most; ++i) whole += ranking[i].weight;
  }
  std::vector<Candidate> kept;
  double before = 0;
  for (size_t i = 0; i < most && (i == 0 || top_p >= 1 || before < top_p * whole); ++i) {
    kept.push_back(ranking[i]);
    before += kept.back().weight;
  }
  std::sort(kept.begin(), kept.end(), [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  return kept;
}

}  // namespace

Drawn draw(const float* logits, int vocab, const DrawRequest& request) {
  if (request.top_p < 1 || request.top_k > 0)
    return draw_truncated(logits, vocab, request.temperature, request.uniform, request.top_p, request.top_k);
  return draw(logits, vocab, request.temperature, request.uniform);
}

Drawn draw(const float* logits, int vocab, float temperature, float uniform) {
  const float inverse_temperature = 1.0f / temperature;
  ops::RowNormalizer normalizer;
  const int32_t token = ops::table().draw_row(logits, vocab, inverse_temperature, uniform, &normalizer);
  if (token < 0) return nothing;
  return {token, ops::row_logprob(logits[token], normalizer, inverse_temperature)};
}

Drawn draw_truncated(const float* logits, int vocab, float temperature, float uniform, double top_p, int top_k) {
  if (top_p >= 1 && (top_k <= 0 || top_k >= vocab)) return draw(logits, vocab, temperature, uniform);
  const float inverse_temperature = 1.0f / temperature;
  const ops::RowNormalizer normalizer = ops::table().normalize_row(logits, vocab, inverse_temperature);
  if (!std::isfinite(normalizer.max) || !std::isfinite(normalizer.log_sum)) return nothing;
  Ranking ranking(logits, vocab, inverse_temperature, normalizer);
  const std::vector<Candidate> kept = truncated(ranking, normalizer, top_p, top_k);
  double whole = 0;
  for (const Candidate& candidate : kept) whole += candidate.weight;
  // The middle of the cell that `uniform` stands for, as in `draw`: 0 must not choose a token of vanishing probability.
  const double wanted = (double(uniform) + 0x1p-25) * whole;
  int32_t chosen = kept.front().token;
  double before = 0;
  for (const Candidate& candidate : kept) {
    chosen = candidate.token;
    before += candidate.weight;
    if (before > wanted) break;
  }
  return {chosen, ops::row_logprob(logits[chosen], normalizer, inverse_temperature)};
}

}  // namespace longhaul
