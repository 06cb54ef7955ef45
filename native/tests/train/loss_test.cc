// The losses: where the clips act, zero advantages, reductions, the terms besides the policy loss, finite differences.
#include "train/loss.h"

#include <limits>

#include "base/philox.h"
#include "support/check.h"
#include "support/loss_values.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr LossKind policy_kinds[] = {LossKind::regular, LossKind::dual_clip, LossKind::gspo,
                                     LossKind::cispo,   LossKind::sapo,      LossKind::reinforce};

/// The inputs of a mini-batch.
struct Problem {
  std::vector<float> logprobs, old, advantages, rollout, reference, entropies;
  std::vector<int32_t> samples;

  /// By default, each call adds a new sample with one target.
  void add(double logprob, double before, double advantage, bool same_sample = false) {
    logprobs.push_back(float(logprob));
    old.push_back(float(before));
    advantages.push_back(float(advantage));
    samples.push_back(samples.empty() ? 0 : samples.back() + !same_sample);
  }
  LossInputs inputs() const {
    LossInputs inputs;
    inputs.logprobs = logprobs;
    inputs.old_logprobs = old;
    inputs.advantages = advantages;
    inputs.samples = samples;
    inputs.rollout_logprobs = rollout;
    inputs.reference_logprobs = reference;
    inputs.entropies = entropies;
    return inputs;
  }
};

struct Result {
  LossReport report;
  std::vector<double> derivatives, entropy_derivatives;
};

Result solve(const LossSettings& settings, const Problem& problem) {
  Result result;
  result.derivatives.resize(problem.logprobs.size());
  result.entropy_derivatives.resize(problem.entropies.size());
  result.report = compute_loss(settings, problem.inputs(), result.derivatives, result.entropy_derivatives);
  return result;
}

LossSettings settings_of(LossKind kind, LossReduction reduction = LossReduction::token_mean) {
  LossSettings settings = loss_of(kind, reduction);
  settings.max_seq_len = 50;
  return settings;
}

/// The loss of one target with this ratio.
Result at_ratio(const LossSettings& settings, double ratio, double advantage) {
  Problem problem;
  problem.add(-1 + std::log(ratio), -1, advantage);
  return solve(settings, problem);
}

double uniform(uint32_t index, uint32_t stream) { return philox_uniform(philox4x32_10({index, stream, 0, 0}, {5, 6})[0]); }

/// Six samples of 1 to 12 targets. Each sample has one advantage; ratios range from about 0.6 to 1.7.
Problem mixed_problem() {
  Problem problem;
  const int lengths[] = {4, 1, 12, 7, 2, 9};
  uint32_t i = 0;
  for (int sample = 0; sample < 6; ++sample)
    for (int t = 0; t < lengths[sample]; ++t, ++i) {
      const double logprob = -0.05 - 3 * uniform(i, 1);
      problem.add(logprob, logprob + uniform(i, 2) - 0.5, sample - 2.5, t > 0);
      problem.rollout.push_back(float(problem.old.back() + 0.6 * uniform(i, 3) - 0.3));
      problem.reference.push_back(float(logprob + 2 * uniform(i, 4) - 1));
      problem.entropies.push_back(float(3 * uniform(i, 5)));
    }
  return problem;
}

void ratio_is_clipped_on_the_side_that_the_advantage_pushes_to() {
  const LossSettings clip = settings_of(LossKind::regular);
  check_near(at_ratio(clip, 1.1, 2).report.loss, -2.2, 1e-6, "unclipped loss");
  check_near(at_ratio(clip, 1.1, 2).derivatives[0], -2.2, 1e-6, "unclipped derivative");
  check_near(at_ratio(clip, 1.5, 2).report.loss, -2.56, 1e-6, "clipped above");
  check_equal(at_ratio(clip, 1.5, 2).derivatives[0], 0.0, "derivative above the clip");
  check_equal(at_ratio(clip, 1.5, 2).report.clipped, 1.0, "clipped above is reported");
  check_equal(at_ratio(clip, 1.27, 2).report.clipped, 0.0, "just below the upper clip");
  check_equal(at_ratio(clip, 1.29, 2).report.clipped, 1.0, "just above the upper clip");
  check_near(at_ratio(clip, 1.5, -2).report.loss, 3.0, 1e-6, "a worse action made likelier is not clipped");
  check_near(at_ratio(clip, 1.5, -2).derivatives[0], 3.0, 1e-6, "and keeps its derivative");
  check_near(at_ratio(clip, 0.5, -2).report.loss, 1.6, 1e-6, "clipped below");
  check_equal(at_ratio(clip, 0.5, -2).derivatives[0], 0.0, "derivative below the clip");
  check_equal(at_ratio(clip, 0.81, -2).report.clipped, 0.0, "just above the lower clip");
  check_equal(at_ratio(clip, 0.79, -2).report.clipped, 1.0, "just below the lower clip");
  check_near(at_ratio(clip, 0.5, 2).derivatives[0], -1.0, 1e-6, "a better action made less likely is not clipped");
}

void dual_clip_bounds_the_loss_of_negative_advantages() {
  const LossSettings dual = settings_of(LossKind::dual_clip);
  check_near(at_ratio(dual, 2.9, -2).report.loss, 5.8, 1e-6, "below the bound");
  check_near(at_ratio(dual, 2.9, -2).derivatives[0], 5.8, 1e-6, "derivative below the bound");
  check_near(at_ratio(dual, 3.1, -2).report.loss, 6, 1e-12, "at the bound");
  check_equal(at_ratio(dual, 3.1, -2).derivatives[0], 0.0, "derivative at the bound");
  check_equal(at_ratio(dual, 3.1, -2).report.clipped, 1.0, "the bound is reported");
  check_equal(at_ratio(dual, 1e30, -2).derivatives[0], 0.0, "derivative far above the bound");
  check_near(at_ratio(settings_of(LossKind::regular), 3.1, -2).derivatives[0], 6.2, 1e-6, "without the bound");
  check_near(at_ratio(dual, 0.5, 2).derivatives[0], -1, 1e-6, "a positive advantage has no bound below");
}

void gspo_clips_whole_samples_by_one_ratio() {
  LossSettings gspo = settings_of(LossKind::gspo, LossReduction::sequence_mean);
  gspo.eps_clip_low = gspo.eps_clip_high = 0.1;
  Problem problem;
  // The first sample's mean log ratio is 0, from targets that differ by ±1; the second sample's is 0.2.
  problem.add(-1, -2, 1);
  problem.add(-2, -1, 1, true);
  problem.add(-1, -1.4, 1);
  problem.add(-1, -1, 1, true);
  const Result result = solve(gspo, problem);
  check_near(result.derivatives[0], -0.25, 1e-12, "a sample inside the clip");
  check_equal(result.derivatives[0], result.derivatives[1], "targets of a sample share its ratio");
  check_equal(result.derivatives[2], 0.0, "a sample above the clip");
  check_equal(result.derivatives[3], 0.0, "a target with ratio 1 in a sample above the clip");
  check_equal(result.report.clipped, 2.0, "targets clipped");
  check_near(result.report.loss, -(1 + 1.1) / 2, 1e-12, "loss");
}

void cispo_bounds_the_weight_and_keeps_every_gradient() {
  LossSettings cispo = settings_of(LossKind::cispo);
  cispo.cispo_eps_clip_high = 1;
  check_near(at_ratio(cispo, 1.5, 2).derivatives[0], -3, 1e-6, "weight inside the bounds");
  check_near(at_ratio(cispo, 7, 2).derivatives[0], -4, 1e-12, "weight at the upper bound");
  check_near(at_ratio(cispo, 7, -2).derivatives[0], 4, 1e-12, "a negative advantage keeps its gradient too");
  check_near(at_ratio(cispo, 7, 2).report.loss, -4 * float(-1 + std::log(7)), 1e-12, "loss");
  check_equal(at_ratio(cispo, 7, 2).report.clipped, 1.0, "the bound is reported");
  cispo.cispo_eps_clip_low = 0;
  check_near(at_ratio(cispo, 0.2, 2).derivatives[0], -2, 1e-12, "weight at the lower bound");
}

void sapo_closes_its_gate_smoothly() {
  const LossSettings sapo = settings_of(LossKind::sapo);
  check_near(at_ratio(sapo, 1, 2).report.loss, -4, 1e-12, "loss at ratio 1: σ(0)·4/τ = 2");
  check_near(at_ratio(sapo, 1, -2).report.loss, 4 / 1.05, 1e-12, "a negative advantage has its own τ");
  double before = std::abs(at_ratio(sapo, 1.5, 1).derivatives[0]);
  for (const double ratio : {3.0, 6.0, 12.0, 24.0}) {
    const double now = std::abs(at_ratio(sapo, ratio, 1).derivatives[0]);
    check(now > 0 && now < before, "the gate closes at ratio " + std::to_string(ratio));
    before = now;
  }
  check(std::abs(at_ratio(sapo, 3, -1).derivatives[0]) < std::abs(at_ratio(sapo, 3, 1).derivatives[0]),
        "the greater τ closes sooner");
  check_equal(at_ratio(sapo, 1e12, 1).derivatives[0], 0.0, "closed");
}

void on_policy_every_policy_loss_has_reinforces_gradient() {
  Problem problem = mixed_problem();
  problem.old = problem.logprobs;
  for (const LossReduction reduction : loss_reductions) {
    const std::vector<double> expected = solve(settings_of(LossKind::reinforce, reduction), problem).derivatives;
    for (const LossKind kind : policy_kinds) {
      const Result result = solve(settings_of(kind, reduction), problem);
      for (size_t t = 0; t < expected.size(); ++t)
        check_near(result.derivatives[t], expected[t], 1e-14, "derivative on policy of kind " + std::to_string(int(kind)));
      check_equal(result.report.clipped, 0.0, "clipped on policy");
      check_equal(result.report.max_difference, 0.0, "difference on policy");
      check_equal(result.report.ratio, double(expected.size()), "ratios on policy");
    }
  }
}

void cross_entropy_weighs_by_the_advantage_and_has_no_ratio() {
  Problem problem = mixed_problem();
  problem.old.assign(problem.old.size(), 0);
  const Result result = solve(settings_of(LossKind::cross_entropy), problem);
  double loss = 0;
  for (size_t t = 0; t < problem.logprobs.size(); ++t) {
    loss -= double(problem.logprobs[t]) * problem.advantages[t] / double(problem.logprobs.size());
    check_near(result.derivatives[t], -problem.advantages[t] / double(problem.logprobs.size()), 1e-15, "derivative");
  }
  check_near(result.report.loss, loss, 1e-14, "loss");
  check_equal(result.report.max_difference, 0.0, "difference");
}

void reductions_share_out_one_loss() {
  Problem problem;
  for (int t = 0; t < 9; ++t) problem.add(-1, -1, 1, t > 0);
  problem.add(-1, -1, 1);
  const auto derivatives = [&](LossReduction reduction) {
    return solve(settings_of(LossKind::reinforce, reduction), problem).derivatives;
  };
  check_near(derivatives(LossReduction::token_mean)[0], -1.0 / 10, 1e-15, "token mean, long sample");
  check_near(derivatives(LossReduction::token_mean)[9], -1.0 / 10, 1e-15, "token mean, short sample");
  check_near(derivatives(LossReduction::sequence_mean)[0], -1.0 / 18, 1e-15, "sequence mean, long sample");
  check_near(derivatives(LossReduction::sequence_mean)[9], -1.0 / 2, 1e-15, "sequence mean, short sample");
  check_near(derivatives(LossReduction::seq_mean_token_sum_norm)[0], -1.0 / 100, 1e-15, "sum over a fixed length");
  check_near(derivatives(LossReduction::seq_mean_token_sum_norm)[9], -1.0 / 100, 1e-15, "sum over a fixed length, short sample");
}

void zero_advantage_gives_zero_gradient() {
  Problem problem = mixed_problem();
  problem.advantages.assign(problem.advantages.size(), 0);
  LossSettings settings;
  for (const LossKind kind : policy_kinds) {
    settings = settings_of(kind);
    settings.tis_cap = 2;
    const Result result = solve(settings, problem);
    for (const double derivative : result.derivatives) check_equal(derivative, 0.0, "derivative");
    check_equal(result.report.loss, 0.0, "loss");
    check_equal(result.report.clipped, 0.0, "clipped");
  }
}

void kl_is_a_mean_over_samples_whatever_the_reduction() {
  Problem problem = mixed_problem();
  problem.advantages.assign(problem.advantages.size(), 0);
  for (const KlEstimator estimator : {KlEstimator::k1, KlEstimator::k2, KlEstimator::k3}) {
    LossSettings settings = settings_of(LossKind::regular);
    settings.kl_weight = 0.5;
    settings.kl_estimator = estimator;
    const Result tokens = solve(settings, problem);
    settings.reduction = LossReduction::sequence_mean;
    const Result sequences = solve(settings, problem);
    check(tokens.derivatives == sequences.derivatives, "derivatives do not depend on the reduction");
    check_equal(tokens.report.loss, sequences.report.loss, "nor does the loss");
    check(std::abs(tokens.report.loss) > 1e-3, "the term is there");
    Problem equal = problem;
    equal.reference = equal.logprobs;
    const Result none = solve(settings, equal);
    check_equal(none.report.kl, 0.0, "estimate at equality");
    // The second sample has a single target, which therefore has the weight of a whole sample: 0.5 / 6.
    check_near(none.derivatives[4], estimator == KlEstimator::k1 ? 0.5 / 6 : 0, 1e-15, "derivative at equality");
  }
  LossSettings k3 = settings_of(LossKind::regular);
  k3.kl_weight = 1;
  Problem single;
  single.add(-1, -1, 0);
  single.reference = {-2};
  check_near(solve(k3, single).report.kl, std::exp(-1) - (-1) - 1, 1e-14, "k3");
  check_near(solve(k3, single).derivatives[0], 1 - std::exp(-1), 1e-14, "derivative of k3");
}

void entropy_bonus_is_a_mean_over_tokens() {
  const Problem problem = mixed_problem();
  LossSettings settings = settings_of(LossKind::regular, LossReduction::sequence_mean);
  const double without = solve(settings, problem).report.loss;
  for (const double derivative : solve(settings, problem).entropy_derivatives) check_equal(derivative, 0.0, "without a bonus");
  settings.entropy_weight = 0.3;
  const Result result = solve(settings, problem);
  double sum = 0;
  for (const float entropy : problem.entropies) sum += entropy;
  const double targets = double(problem.entropies.size());
  check_near(result.report.entropy, sum, 1e-12, "sum of entropies");
  check_near(result.report.loss, without - 0.3 * sum / targets, 1e-14, "loss");
  for (const double derivative : result.entropy_derivatives) check_near(derivative, -0.3 / targets, 1e-16, "derivative");
}

void importance_weights_are_truncated_and_multiply_the_policy_loss_alone() {
  LossSettings settings = settings_of(LossKind::reinforce);
  settings.tis_cap = 2;
  Problem problem;
  problem.add(-1, -1, 1);
  problem.add(-1, -1, 1);
  problem.rollout = {float(-1 - std::log(5)), float(-1 + std::log(4))};
  const Result result = solve(settings, problem);
  check_near(result.derivatives[0], -2.0 / 2, 1e-12, "weight at the cap");
  check_near(result.derivatives[1], -0.25 / 2, 1e-6, "weight below the cap");
  check_near(result.report.tis_weight, 2.25, 1e-6, "sum of weights");
  Problem same = problem;
  same.rollout.clear();
  check_near(solve(settings, same).report.tis_weight, 2, 1e-15, "log-probs at sampling are the old ones where there are none");
  settings.kl_weight = 1;
  settings.kl_estimator = KlEstimator::k1;
  problem.advantages = {0, 0};
  problem.reference = {-3, -3};
  check_near(solve(settings, problem).derivatives[0], 0.5, 1e-15, "the KL term has no importance weight");
}

/// Central differences over every target. CISPO's weight is not differentiated, so bounds of 0 fix it at 1.
void derivatives_match_finite_differences() {
  const Problem problem = mixed_problem();
  for (const LossKind kind : policy_kinds)
    for (const LossReduction reduction : loss_reductions)
      for (const KlEstimator estimator : {KlEstimator::k1, KlEstimator::k2, KlEstimator::k3}) {
        LossSettings settings = settings_of(kind, reduction);
        settings.cispo_eps_clip_low = settings.cispo_eps_clip_high = 0;
        settings.kl_weight = 0.1;
        settings.kl_estimator = estimator;
        settings.entropy_weight = 0.05;
        // With GSPO, a target's importance weight would multiply the ratio that all targets of its sample share.
        if (kind != LossKind::gspo) settings.tis_cap = 1.1;
        const Result result = solve(settings, problem);
        for (size_t t = 0; t < problem.logprobs.size(); ++t) {
          Problem above = problem, below = problem;
          above.logprobs[t] += 1e-3f;
          below.logprobs[t] -= 1e-3f;
          const Result up = solve(settings, above), down = solve(settings, below);
          if (up.report.clipped != down.report.clipped) continue;  // the clip's corner lies between the two
          const double moved = double(above.logprobs[t]) - double(below.logprobs[t]);
          check_near((up.report.loss - down.report.loss) / moved, result.derivatives[t], 1e-6,
                     "kind " + std::to_string(int(kind)) + ", target " + std::to_string(t));
        }
        Problem above = problem;
        above.entropies[3] += 1;
        const double moved = double(above.entropies[3]) - double(problem.entropies[3]);
        check_near((solve(settings, above).report.loss - result.report.loss) / moved, result.entropy_derivatives[3], 1e-12,
                   "entropy");
      }
}

void non_finite_inputs_give_a_non_finite_loss() {
  for (const LossKind kind : policy_kinds) {
    Problem problem = mixed_problem();
    problem.logprobs[5] = std::numeric_limits<float>::quiet_NaN();
    check(!std::isfinite(solve(settings_of(kind), problem).report.loss), "a log-prob that is not a number");
  }
  check(!std::isfinite(at_ratio(settings_of(LossKind::regular), std::exp(705.0), -1).report.loss), "a ratio that overflows");
}

void bad_settings_are_refused() {
  const auto refused = [](const std::function<void(LossSettings&)>& spoil, const std::string& part, LossKind kind = LossKind::regular) {
    LossSettings settings = settings_of(kind);
    validate(settings);
    spoil(settings);
    check_throws<std::invalid_argument>([&] { validate(settings); }, part, part);
  };
  refused([](LossSettings& s) { s.eps_clip_low = 1.5; }, "loss.eps_clip_low is 1.5; it must be in [0, 1]");
  refused([](LossSettings& s) { s.eps_clip_high = -0.1; }, "loss.eps_clip_high is -0.1");
  refused([](LossSettings& s) { s.clip_ratio_c = 1; }, "loss.clip_ratio_c is 1", LossKind::dual_clip);
  refused([](LossSettings& s) { s.cispo_eps_clip_low = -1; }, "loss.cispo_eps_clip_low", LossKind::cispo);
  refused([](LossSettings& s) { s.cispo_eps_clip_high = std::numeric_limits<double>::infinity(); }, "loss.cispo_eps_clip_high is inf",
          LossKind::cispo);
  refused([](LossSettings& s) { s.sapo_tau_pos = 0; }, "loss.sapo_tau_pos is 0", LossKind::sapo);
  refused([](LossSettings& s) { s.sapo_tau_neg = -1; }, "loss.sapo_tau_neg is -1", LossKind::sapo);
  refused([](LossSettings& s) { s.kl_weight = std::nan(""); }, "loss.kl_weight is nan");
  refused([](LossSettings& s) { s.entropy_weight = -0.01; }, "loss.entropy_weight is -0.01");
  refused([](LossSettings& s) { s.tis_cap = -2; }, "loss.tis_cap is -2");
  refused(
      [](LossSettings& s) {
        s.kind = LossKind::cross_entropy;
        s.tis_cap = 2;
      },
      "0 with cross_entropy");
  refused(
      [](LossSettings& s) {
        s.reduction = LossReduction::seq_mean_token_sum_norm;
        s.max_seq_len = 0;
      },
      "loss.max_seq_len is 0");
}

}  // namespace

int main() {
  return run({{"the ratio is clipped on the side that the advantage pushes to", ratio_is_clipped_on_the_side_that_the_advantage_pushes_to},
              {"dual clip bounds the loss of negative advantages", dual_clip_bounds_the_loss_of_negative_advantages},
              {"GSPO clips whole samples by one ratio", gspo_clips_whole_samples_by_one_ratio},
              {"CISPO bounds the weight and keeps every gradient", cispo_bounds_the_weight_and_keeps_every_gradient},
              {"SAPO closes its gate smoothly", sapo_closes_its_gate_smoothly},
              {"on policy every policy loss has REINFORCE's gradient", on_policy_every_policy_loss_has_reinforces_gradient},
              {"cross-entropy weighs by the advantage and has no ratio", cross_entropy_weighs_by_the_advantage_and_has_no_ratio},
              {"reductions share out one loss", reductions_share_out_one_loss},
              {"a zero advantage gives a zero gradient", zero_advantage_gives_zero_gradient},
              {"KL is a mean over samples whatever the reduction", kl_is_a_mean_over_samples_whatever_the_reduction},
              {"the entropy bonus is a mean over tokens", entropy_bonus_is_a_mean_over_tokens},
              {"importance weights are truncated and multiply the policy loss alone", importance_weights_are_truncated_and_multiply_the_policy_loss_alone},
              {"derivatives match finite differences", derivatives_match_finite_differences},
              {"non-finite inputs give a non-finite loss", non_finite_inputs_give_a_non_finite_loss},
              {"bad settings are refused", bad_settings_are_refused}});
}
