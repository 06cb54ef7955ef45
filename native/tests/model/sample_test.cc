#include "model/inference/sample.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/exact_math.h"
#include "base/philox.h"
#include "support/check.h"
#include "support/logprob.h"
#include "ops/ops.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

std::vector<float> some_logits(int n, uint32_t stream, float scale = 8) {
  std::vector<float> logits;
  for (int i = 0; i < n; ++i)
    logits.push_back(scale * (philox_uniform(philox4x32_10({uint32_t(i), stream, 0, 0}, {1, 2})[0]) - 0.5f));
  return logits;
}

std::vector<double> probabilities(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double greatest = -1e30, sum = 0;
  for (const float z : logits) greatest = std::max(greatest, double(z));
  for (const float z : logits) p.push_back(std::exp((z - greatest) / temperature));
  for (const double x : p) sum += x;
  for (double& x : p) x /= sum;
  return p;
}

void logprobs_match_double_precision() {
  for (const int n : {1, 5, 16, 64, 71, 1000, 1024})
    for (const float temperature : {0.3f, 1.0f, 2.0f}) {
      const std::vector<float> logits = some_logits(n, uint32_t(n));
      const std::vector<double> p = probabilities(logits, temperature);
      for (int i = 0; i < n; i += 1 + n / 9)
        check_near(logprob_of(logits.data(), n, temperature, i), std::log(p[i]), 2e-6, "vocabulary of " + std::to_string(n));
    }
}

void draw_is_the_inverse_cdf_in_token_order() {
  const int n = 200;
  const std::vector<float> logits = some_logits(n, 3);
  const std::vector<double> p = probabilities(logits, 1);
  double before = 0;
  for (int i = 0; i < n; ++i) {
    // A number in the middle of the token's interval, which rounding cannot move out of it.
    if (p[i] > 1e-5) check_equal(draw(logits.data(), n, 1, float(before + p[i] / 2)).token, i, "token");
    before += p[i];
  }
}

void draw_reports_the_logprob_that_scoring_computes() {
  const std::vector<float> logits = some_logits(333, 4);
  for (uint32_t i = 0; i < 100; ++i) {
    const Drawn drawn = draw(logits.data(), 333, 0.8f, philox_uniform(i * 42949672u));
    const float scored = logprob_of(logits.data(), 333, 0.8f, drawn.token);
    check_same_bits(&drawn.logprob, &scored, 1, "logprob");
  }
}

void frequencies_follow_the_distribution() {
  const int n = 20, draws = 40000;
  const std::vector<float> logits = some_logits(n, 5, 4);
  const std::vector<double> p = probabilities(logits, 0.7);
  std::vector<int> counts(n);
  for (int i = 0; i < draws; ++i)
    ++counts[draw(logits.data(), n, 0.7f, sampling_uniform({9, PhiloxDomain::train, 1, 2, 3}, uint32_t(i))).token];
  double chi_squared = 0;
  for (int i = 0; i < n; ++i) chi_squared += std::pow(counts[i] - draws * p[i], 2) / (draws * p[i]);
  check(chi_squared < 45, "chi squared is " + std::to_string(chi_squared) + " with 19 degrees of freedom");
}

void improbable_tokens_are_not_drawn_at_the_ends() {
  std::vector<float> logits(300, -60.0f);
  logits[150] = 0;
  check_equal(draw(logits.data(), 300, 1, 0.0f).token, 150, "uniform 0");
  check_equal(draw(logits.data(), 300, 1, 1 - 0x1p-24f).token, 150, "greatest uniform");
}

void logits_that_are_not_finite_draw_nothing() {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const int place : {0, 17, 99}) {
      std::vector<float> logits = some_logits(100, 6);
      logits[place] = bad;
      check_equal(draw(logits.data(), 100, 1, 0.5f).token, -1, "token");
      check(!std::isfinite(logprob_of(logits.data(), 100, 1, place)), "log-prob is not finite");
    }
}

/// The tokens that may be drawn: after the cut by top_k, then by top_p.
std::vector<bool> allowed(const std::vector<double>& p, double top_p, int top_k) {
  std::vector<int> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p[size_t(a)] > p[size_t(b)]; });
  if (top_k > 0 && top_k < int(order.size())) order.resize(size_t(top_k));
  double whole = 0, before = 0;
  for (const int token : order) whole += p[size_t(token)];
  std::vector<bool> kept(p.size());
  for (const int token : order) {
    if (before >= top_p * whole && before > 0) break;
    kept[size_t(token)] = true;
    before += p[size_t(token)];
  }
  return kept;
}

void truncated_draws_follow_the_truncated_distribution() {
  const int n = 300, draws = 4000;
  const std::vector<float> logits = some_logits(n, 8, 12);
  const std::vector<double> p = probabilities(logits, 0.9);
  for (const auto& [top_p, top_k] : {std::pair{0.5, 0}, {1.0, 7}, {0.8, 20}, {1e-9, 0}, {1.0, 1}, {0.999, 299}}) {
    const std::vector<bool> kept = allowed(p, top_p, top_k);
    double whole = 0;
    for (int i = 0; i < n; ++i) whole += kept[size_t(i)] ? p[size_t(i)] : 0;
    std::vector<double> counts(static_cast<size_t>(n));
    for (int i = 0; i < draws; ++i) {
      const Drawn drawn = draw_truncated(logits.data(), n, 0.9f, (float(i) + 0.5f) / draws, top_p, top_k);
      const std::string what = "top_p " + std::to_string(top_p) + ", top_k " + std::to_string(top_k);
      check(drawn.token >= 0 && kept[size_t(drawn.token)], what + ": a token that is not allowed");
      // The log-prob under the whole distribution, as training computes it.
      const float scored = logprob_of(logits.data(), n, 0.9f, drawn.token);
      check_same_bits(&drawn.logprob, &scored, 1, "log-prob, " + what);
      ++counts[size_t(drawn.token)];
    }
    for (int i = 0; i < n; ++i)
      check_near(counts[size_t(i)] / draws, kept[size_t(i)] ? p[size_t(i)] / whole : 0, 2.0 / draws, "frequency of token " + std::to_string(i));
  }
}

void disabled_truncation_equals_the_plain_draw() {
  const std::vector<float> logits = some_logits(100, 9);
  for (uint32_t i = 0; i < 100; ++i) {
    const float uniform = philox_uniform(i * 42949672u);
    for (const int top_k : {0, 100, 1000})
      check_equal(draw_truncated(logits.data(), 100, 1, uniform, 1, top_k).token, draw(logits.data(), 100, 1, uniform).token, "token");
  }
  const std::vector<float> equal(50, 2.0f);
  for (const float uniform : {0.0f, 0.4f, 0.99f})
    check(draw_truncated(equal.data(), 50, 1, uniform, 1, 3).token < 3, "of equally likely tokens those with small ids are kept");
  std::vector<float> bad = logits;
  bad[3] = std::numeric_limits<float>::quiet_NaN();
  check_equal(draw_truncated(bad.data(), 100, 1, 0.5f, 0.9, 0).token, -1, "token of logits that are not finite");
}

void instruction_sets_agree() {
  const std::vector<float> logits = some_logits(1000, 7);
  for (const auto set : {ops::InstructionSet::scalar, ops::InstructionSet::avx2, ops::InstructionSet::avx512}) {
    if (!ops::supported(set)) continue;
    for (uint32_t i = 0; i < 50; ++i) {
      const float uniform = philox_uniform(i * 85899345u);
      ops::set_instruction_set(ops::best_instruction_set());
      const Drawn expected = draw(logits.data(), 1000, 1.3f, uniform);
      ops::set_instruction_set(set);
      const Drawn drawn = draw(logits.data(), 1000, 1.3f, uniform);
      check_equal(drawn.token, expected.token, ops::name(set));
      check_same_bits(&drawn.logprob, &expected.logprob, 1, ops::name(set));
    }
  }
  ops::set_instruction_set(ops::best_instruction_set());
}

void exact_functions_match_libm() {
  for (double x = -20; x < 20; x += 0.37) {
    check_near(exact::exp(x) / std::exp(x), 1, 1e-14, "exp");
    check_near(exact::sine_cosine(x * 1000).sine, std::sin(x * 1000), 1e-12, "sine");
    check_near(exact::sine_cosine(x * 1000).cosine, std::cos(x * 1000), 1e-12, "cosine");
    check_near(exact::log(std::exp(x)), x, 1e-14, "log");
  }
  check_near(exact::integer_power(0.999, 12345), std::pow(0.999, 12345), 1e-12, "power");
}

}  // namespace

int main() {
  return run({{"log-probs match double precision", logprobs_match_double_precision},
              {"a draw is the inverse CDF in token order", draw_is_the_inverse_cdf_in_token_order},
              {"a draw reports the log-prob that scoring computes", draw_reports_the_logprob_that_scoring_computes},
              {"frequencies follow the distribution", frequencies_follow_the_distribution},
              {"improbable tokens are not drawn at the ends", improbable_tokens_are_not_drawn_at_the_ends},
              {"logits that are not finite draw nothing", logits_that_are_not_finite_draw_nothing},
              {"truncated draws follow the truncated distribution", truncated_draws_follow_the_truncated_distribution},
              {"disabled truncation equals the plain draw", disabled_truncation_equals_the_plain_draw},
              {"instruction sets agree", instruction_sets_agree},
              {"exact functions match libm", exact_functions_match_libm}});
}
