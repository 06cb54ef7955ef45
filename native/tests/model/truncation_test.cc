// Compares draws from the likeliest tokens with a slow reference.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/philox.h"
#include "support/check.h"
#include "support/logprob.h"
#include "model/inference/sample.h"
#include "ops/ops.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

float uniform_of(uint32_t i) { return philox_uniform(philox4x32_10({i, 0, 0, 0}, {5, 6})[0]); }

std::vector<float> some_logits(int n, uint32_t stream, float scale = 8) {
  std::vector<float> logits;
  for (int i = 0; i < n; ++i)
    logits.push_back(scale * (philox_uniform(philox4x32_10({uint32_t(i), stream, 0, 0}, {1, 2})[0]) - 0.5f));
  return logits;
}

/// Probabilities of the truncated distribution, 0 for tokens that it excludes.
std::vector<double> truncated_probabilities(const std::vector<float>& logits, double temperature, double top_p, int top_k) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  if (top_k > 0) order.resize(std::min(order.size(), size_t(top_k)));
  double whole = 0, before = 0, kept = 0;
  const auto weight = [&](int token) { return std::exp((logits[token] - double(logits[order[0]])) / temperature); };
  for (const int token : order) whole += weight(token);
  std::vector<double> p(logits.size(), 0.0);
  for (const int token : order) {
    if (before >= top_p * whole) break;
    p[token] = weight(token);
    before += p[token];
    kept += p[token];
  }
  for (double& x : p) x /= kept;
  return p;
}

void draws_are_the_inverse_cdf_of_the_kept_tokens() {
  for (const int n : {1, 7, 200, 5000})
    for (const auto& [top_p, top_k] : std::vector<std::pair<double, int>>{
             {1, 1}, {1, 5}, {0.9, 0}, {0.5, 0}, {0.3, 10}, {0.95, 150}, {1e-9, 0}, {0.999999, 0}, {0.8, 100000}}) {
      const std::vector<float> logits = some_logits(n, uint32_t(n));
      const std::vector<double> p = truncated_probabilities(logits, 0.8, top_p, top_k);
      double before = 0;
      for (int i = 0; i < n; ++i) {
        // A number in the middle of the token's interval, which rounding cannot move out of it.
        if (p[i] > 1e-5)
          check_equal(draw_truncated(logits.data(), n, 0.8f, float(before + p[i] / 2), top_p, top_k).token, i,
                      "token of " + std::to_string(n) + ", top_p " + std::to_string(top_p) + ", top_k " + std::to_string(top_k));
        before += p[i];
      }
    }
}

void the_logprob_is_that_of_the_whole_distribution() {
  const std::vector<float> logits = some_logits(333, 4);
  for (uint32_t i = 0; i < 100; ++i) {
    const Drawn drawn = draw_truncated(logits.data(), 333, 0.8f, uniform_of(i), 0.7, 20);
    const float scored = logprob_of(logits.data(), 333, 0.8f, drawn.token);
    check_same_bits(&drawn.logprob, &scored, 1, "log-prob");
  }
}

void disabled_truncation_equals_draw() {
  const std::vector<float> logits = some_logits(500, 5);
  for (uint32_t i = 0; i < 100; ++i)
    for (const int top_k : {0, 500, 1000}) {
      const Drawn plain = draw(logits.data(), 500, 1.2f, uniform_of(i));
      const Drawn drawn = draw_truncated(logits.data(), 500, 1.2f, uniform_of(i), 1, top_k);
      check_equal(drawn.token, plain.token, "token");
      check_same_bits(&drawn.logprob, &plain.logprob, 1, "log-prob");
    }
}

void of_equally_likely_tokens_the_first_are_kept() {
  // More equal tokens than the first sort covers.
  const std::vector<float> logits(300, 1.5f);
  for (const int top_k : {1, 3, 70, 200}) {
    std::set<int> seen;
    for (uint32_t i = 0; i < 4000; ++i) seen.insert(draw_truncated(logits.data(), 300, 1, uniform_of(i), 1, top_k).token);
    check_equal(*seen.rbegin(), top_k - 1, "greatest token");
    check_equal(seen.size(), size_t(top_k), "tokens");
  }
  std::set<int> seen;
  for (uint32_t i = 0; i < 4000; ++i) seen.insert(draw_truncated(logits.data(), 300, 1, uniform_of(i), 0.0999, 0).token);
  check_equal(*seen.rbegin(), 29, "greatest token of a tenth");
}

void the_strongest_truncation_is_greedy() {
  const std::vector<float> logits = some_logits(1000, 6);
  const int best = int(std::max_element(logits.begin(), logits.end()) - logits.begin());
  for (uint32_t i = 0; i < 50; ++i) {
    check_equal(draw_truncated(logits.data(), 1000, 1, uniform_of(i), 1, 1).token, best, "top_k 1");
    check_equal(draw_truncated(logits.data(), 1000, 1, uniform_of(i), 1e-12, 0).token, best, "tiny top_p");
  }
}

void impossible_tokens_are_never_drawn() {
  std::vector<float> logits(100, -1e30f);
  logits[40] = 1;
  logits[60] = 0;
  for (uint32_t i = 0; i < 50; ++i) {
    const int token = draw_truncated(logits.data(), 100, 1, uniform_of(i), 0.999, 0).token;
    check(token == 40 || token == 60, "token");
  }
}

void logits_that_are_not_finite_draw_nothing() {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const int place : {0, 17, 99}) {
      std::vector<float> logits = some_logits(100, 6);
      logits[place] = bad;
      check_equal(draw_truncated(logits.data(), 100, 1, 0.5f, 0.9, 10).token, -1, "token");
    }
}

void instruction_sets_agree() {
  const std::vector<float> logits = some_logits(1000, 7);
  for (const auto set : {ops::InstructionSet::scalar, ops::InstructionSet::avx2, ops::InstructionSet::avx512}) {
    if (!ops::supported(set)) continue;
    for (uint32_t i = 0; i < 50; ++i) {
      ops::set_instruction_set(ops::best_instruction_set());
      const Drawn expected = draw_truncated(logits.data(), 1000, 1.3f, uniform_of(i), 0.9, 200);
      ops::set_instruction_set(set);
      const Drawn drawn = draw_truncated(logits.data(), 1000, 1.3f, uniform_of(i), 0.9, 200);
      check_equal(drawn.token, expected.token, ops::name(set));
      check_same_bits(&drawn.logprob, &expected.logprob, 1, ops::name(set));
    }
  }
  ops::set_instruction_set(ops::best_instruction_set());
}

}  // namespace

int main() {
  return run({{"draws are the inverse CDF of the kept tokens", draws_are_the_inverse_cdf_of_the_kept_tokens},
              {"the log-prob is that of the whole distribution", the_logprob_is_that_of_the_whole_distribution},
              {"disabled truncation equals draw", disabled_truncation_equals_draw},
              {"of equally likely tokens the first are kept", of_equally_likely_tokens_the_first_are_kept},
              {"the strongest truncation is greedy", the_strongest_truncation_is_greedy},
              {"impossible tokens are never drawn", impossible_tokens_are_never_drawn},
              {"logits that are not finite draw nothing", logits_that_are_not_finite_draw_nothing},
              {"instruction sets agree", instruction_sets_agree}});
}
