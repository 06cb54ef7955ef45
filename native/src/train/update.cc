#include "train/update.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "pass/plan/pass_plan.h"

namespace longhaul {

namespace {

/// Thrown to end a cancelled update.
struct CancelledUpdate {};

/// Receives the progress of an update's passes.
struct Progress {
  OnAdvance advanced, passed;
};

struct PlannedMiniBatch {
  MiniBatch mini;
  /// Empty if not wanted.
  std::vector<float> reference_logprobs, start_logprobs;
};

void check(const UpdateSettings& settings) {
  const auto require = [](bool ok, const char* what) {
    if (!ok) throw std::invalid_argument(std::string("update: ") + what);
  };
  const OptimizerSettings& optimizer = settings.optimizer;
  require(!settings.learning_rates.empty(), "learning_rates is empty; it must have one rate for each mini-batch");
  for (const double rate : settings.learning_rates)
    require(std::isfinite(rate) && rate >= 0, "learning_rates must be finite and not negative");
  require(optimizer.beta1 >= 0 && optimizer.beta1 < 1 && optimizer.beta2 >= 0 && optimizer.beta2 < 1,
          "adam_betas must be in [0, 1)");
  require(optimizer.adam_eps > 0, "adam_eps must be above 0");
  require(optimizer.weight_decay >= 0, "weight_decay must not be negative");
  require(optimizer.max_grad_norm > 0, "max_grad_norm must be above 0");
  require(settings.temperature > 0, "temperature must be above 0");
  require(settings.passes.pass_rows >= piece_rows && settings.passes.pass_rows % piece_rows == 0,
          "pass_rows must be a multiple of 512, at least 512");
  validate(settings.loss);
}

void check_reference(const Policy& policy, const UpdateSettings& settings) {
  if (!settings.loss.wants_reference()) return;
  if (!settings.reference)
    throw std::invalid_argument("update: loss.kl_weight is above 0, but there are no reference weights; send them with set_reference");
  if (!(settings.reference->architecture() == policy.architecture()))
    throw std::invalid_argument("update: the reference weights have another architecture than the policy");
}

std::vector<int> rows_of_mini_batches(const Batch& batch, size_t mini_batches) {
  std::vector<int> rows(mini_batches);
  for (int n = 0; n < batch.node_count(); ++n) rows[size_t(batch.node(n).mini_batch)] += batch.node(n).length;
  return rows;
}

/// Number of progress units of an update. Each mini-batch counts its forward and backward passes, the reference's passes and the optimizer
/// step. If the batch has no old log-probs, every mini-batch after the first also counts the passes of the policy from which the update
/// started.
int count_work(const std::vector<int>& rows, const UpdateSettings& settings, bool has_old_logprobs) {
  int work = 0;
  for (size_t k = 0; k < rows.size(); ++k) {
    const int forward_only = int(settings.loss.wants_reference()) + int(!has_old_logprobs && k > 0);
    work += count_passes(rows[k], settings.passes.pass_rows) * (2 + forward_only) + 1;
  }
  return work;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double(a[i]) - double(b[i])));
  return largest;
}

/// Sums over the mini-batches of an update.
struct Totals {
  double loss = 0, norm = 0, clip_ratio = 0, ratio = 0, max_difference = 0, kl = 0, entropy = 0, tis_weight = 0, targets = 0,
         rows = 0;

  void add(const LossReport& report, const MiniBatch& mini, double gradient_norm, bool first) {
    const double count = double(mini.target_rows.size());
    loss += report.loss;
    norm += gradient_norm;
    clip_ratio += report.clipped / count;
    ratio += report.ratio / count;
    if (first) max_difference = report.max_difference;
    kl += report.kl;
    entropy += report.entropy;
    tis_weight += report.tis_weight;
    targets += count;
    rows += mini.forest.rows();
  }

  std::vector<std::pair<std::string, double>> metrics(const LossSettings& settings, int mini_batches) const {
    const double n = mini_batches;
    std::vector<std::pair<std::string, double>> all{{"loss", loss / n},
                                                    {"grad_norm", norm / n},
                                                    {"clip_ratio", clip_ratio / n},
                                                    {"mean_ratio", ratio / n},
                                                    {"max_logprob_difference", max_difference},
                                                    {"targets", targets},
                                                    {"rows", rows}};
    if (settings.kl_weight != 0) all.emplace_back("kl", kl / targets);
    if (std::isfinite(entropy)) all.emplace_back("entropy", entropy / targets);
    if (settings.tis_cap > 0) all.emplace_back("tis_weight", tis_weight / targets);
    return all;
  }
};

/// Whether the memory of `spent` can receive a step from `policy`: the same kind of policy, on the same frozen weights.
bool fits(const Policy& spent, const Policy& policy) {
  if (!(spent.architecture() == policy.architecture()) || spent.moments().format != policy.moments().format) return false;
  const Adapters *own = spent.adapters(), *other = policy.adapters();
  if (!own || !other) return !own && !other;
  return own->settings() == other->settings() && spent.shared_weights() == policy.shared_weights();
}

}  // namespace

struct Trainer::State {
  explicit State(Backend& backend) : oracle(backend.numerics().oracle), training(backend.make_training()) {}

  const Oracle& oracle;
  const std::unique_ptr<Training> training;
  std::unique_ptr<Policy> spare;

  /// A policy that can receive the result of a step from `policy`; the step overwrites its values.
  std::unique_ptr<Policy> place_for_next(const Policy& policy) {
    if (spare && fits(*spare, policy)) return std::move(spare);
    spare.reset();
    return std::make_unique<Policy>(policy);
  }

  std::vector<PlannedMiniBatch> plan(const Policy& policy, const Batch& batch, const UpdateSettings& settings, const Progress& progress);
  void begin(const Policy& policy, const MiniBatch& mini, const UpdateSettings& settings, const Progress& progress);
  LossReport gradient(const Policy& policy, const PlannedMiniBatch& planned, bool first, const UpdateSettings& settings,
                      const Progress& progress);
  UpdateReport update(const Policy& policy, const Batch& batch, const UpdateSettings& settings);
};

void Trainer::State::begin(const Policy& policy, const MiniBatch& mini, const UpdateSettings& settings, const Progress& progress) {
  training->begin(policy, mini.forest, mini.target_rows, mini.target_tokens, float(settings.temperature), progress.advanced,
                  progress.passed);
}

/// All mini-batches, with the log-probs that must be computed before the first step of this update: those of the reference and, if the batch has
/// no old log-probs, those of the policy before the update (for the first mini-batch, its gradient computes them).
std::vector<PlannedMiniBatch> Trainer::State::plan(const Policy& policy, const Batch& batch, const UpdateSettings& settings,
                                                   const Progress& progress) {
  std::vector<PlannedMiniBatch> all(settings.learning_rates.size());
  for (size_t k = 0; k < all.size(); ++k) {
    PlannedMiniBatch& one = all[k];
    one.mini = mini_batch_of(batch, int(k));
    const auto score_with = [&](const Policy& other, std::vector<float>& logprobs) {
      logprobs.resize(one.mini.target_rows.size());
      begin(other, one.mini, settings, progress);
      training->logprobs(logprobs);
    };
    if (settings.loss.wants_reference()) score_with(Policy::frozen(settings.reference), one.reference_logprobs);
    if (one.mini.old_logprobs.empty() && k > 0) score_with(policy, one.start_logprobs);
  }
  return all;
}

/// Computes the policy's log-probs, the loss and the gradient.
LossReport Trainer::State::gradient(const Policy& policy, const PlannedMiniBatch& planned, bool first,
                                    const UpdateSettings& settings, const Progress& progress) {
  const MiniBatch& mini = planned.mini;
  const bool has_old = !mini.old_logprobs.empty();
  LossReport report;
  const auto derive = [&](std::span<const float> logprobs, std::span<const float> entropies, std::span<double> derivatives,
                          std::span<double> entropy_derivatives) {
    if (first && settings.first_logprobs) settings.first_logprobs(mini, logprobs);
    LossInputs inputs;
    inputs.logprobs = logprobs;
    inputs.old_logprobs = has_old                          ? mini.old_logprobs
                          : planned.start_logprobs.empty() ? logprobs
                                                           : std::span<const float>(planned.start_logprobs);
    inputs.advantages = mini.advantages;
    inputs.samples = mini.target_samples;
    inputs.rollout_logprobs = mini.rollout_logprobs;
    inputs.reference_logprobs = planned.reference_logprobs;
    inputs.entropies = entropies;
    report = compute_loss(settings.loss, inputs, derivatives, entropy_derivatives);
    if (!has_old) report.max_difference = largest_difference(logprobs, mini.rollout_logprobs);
  };
  begin(policy, mini, settings, progress);
  if (first && settings.checked_gradient) training->check_gradient(oracle, *settings.checked_gradient);
  training->gradient(derive, settings.loss.entropy_weight != 0);
  return report;
}

UpdateReport Trainer::State::update(const Policy& policy, const Batch& batch, const UpdateSettings& settings) {
  const std::vector<int> rows = rows_of_mini_batches(batch, settings.learning_rates.size());
  const int total = count_work(rows, settings, !batch.target_old_logprobs.empty());
  int done = 0;
  Progress progress;
  progress.advanced = [&] {
    if (settings.advanced) settings.advanced();
    if (settings.cancelled && settings.cancelled->load(std::memory_order_relaxed)) throw CancelledUpdate{};
  };
  progress.passed = [&] {
    if (settings.progress) settings.progress(++done, total);
    if (settings.cancelled && settings.cancelled->load(std::memory_order_relaxed)) throw CancelledUpdate{};
  };
  training->prepare(settings.passes, *std::max_element(rows.begin(), rows.end()));
  std::unique_ptr<Policy> next = place_for_next(policy);
  // The first step reads the held policy and writes `next`, so nothing is copied; all later steps work in `next`.
  const Policy* from = &policy;
  Totals totals;
  const auto give_up = [&](const char* reason) {
    training->give_up();
    spare = std::move(next);
    return UpdateReport{false, nullptr, reason, {}};
  };
  try {
    const std::vector<PlannedMiniBatch> all = plan(policy, batch, settings, progress);
    for (size_t k = 0; k < all.size(); ++k) {
      const LossReport report = gradient(*from, all[k], k == 0, settings, progress);
      const double norm = training->gradient_norm();
      if (!std::isfinite(norm) || !std::isfinite(report.loss)) return give_up("non_finite");
      training->step(*next, *from, k == 0 && settings.reset_moments, norm, settings.learning_rates[k], settings.optimizer);
      from = next.get();
      progress.passed();
      totals.add(report, all[k].mini, norm, k == 0);
    }
    training->collect(*next);
  } catch (const CancelledUpdate&) {
    return give_up("cancelled");
  } catch (...) {
    training->give_up();
    throw;
  }
  return {true, std::move(next), "", totals.metrics(settings.loss, int(settings.learning_rates.size()))};
}

Trainer::Trainer(Backend& backend) : state_(std::make_unique<State>(backend)) {}

Trainer::~Trainer() = default;

UpdateReport Trainer::update(const Policy& policy, const Batch& batch, const UpdateSettings& settings) {
  check(settings);
  check_reference(policy, settings);
  return state_->update(policy, batch, settings);
}

void Trainer::recycle(std::unique_ptr<Policy> spent) { state_->spare = std::move(spent); }

UpdateReport compute_update(const Policy& policy, const Batch& batch, const UpdateSettings& settings, Backend& backend) {
  Trainer trainer(backend);
  return trainer.update(policy, batch, settings);
}

}  // namespace longhaul
