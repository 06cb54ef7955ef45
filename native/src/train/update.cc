#include "train/update.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "train/forest/forest_pass_plan.h"
#include "train/gradient_work.h"

namespace longhaul {

namespace {

/// Thrown to end a cancelled update.
struct CancelledUpdate {};

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
  explicit State(ThreadPool& the_pool) : pool(the_pool) {}

  ThreadPool& pool;
  std::unique_ptr<ForestPass> pass;
  bool recomputes = false;
  /// Rows of the largest pass that `pass` has had memory for.
  int held_rows = 0;
  AlignedBuffer gradients{BufferMemory::mapped};
  std::unique_ptr<Policy> spare;
  std::vector<float> reference_logprobs, old_logprobs;

  /// Keeps the memory of earlier passes, unless the settings allow less memory than those passes took.
  void prepare_pass(const ForestPassSettings& settings, int most_rows) {
    const int rows = std::min(most_rows, settings.pass_rows);
    const bool tighter = (settings.recompute && !recomputes) || (rows < most_rows && rows < held_rows);
    if (!pass || tighter) {
      pass = std::make_unique<ForestPass>(pool, settings);
      held_rows = 0;
    }
    pass->configure(settings);
    recomputes = settings.recompute;
    held_rows = std::max(held_rows, rows);
  }

  /// A policy that can receive the result of a step from `policy`; the step overwrites its values.
  std::unique_ptr<Policy> place_for_next(const Policy& policy) {
    if (spare && fits(*spare, policy)) return std::move(spare);
    spare.reset();
    return std::make_unique<Policy>(policy);
  }

  std::span<float> zero_gradients(size_t size) {
    float* all = room(gradients, size);
    constexpr size_t block = size_t{1} << 18;
    pool.parallel_for((size + block - 1) / block, [&](size_t b) {
      std::memset(all + b * block, 0, std::min(block, size - b * block) * sizeof(float));
    });
    return {all, size};
  }

  UpdateReport update(const Policy& policy, const Batch& batch, const UpdateSettings& settings);
  LossReport gradient(const Policy& policy, const Policy& start, const MiniBatch& mini, const UpdateSettings& settings,
                      const OnAdvance& advanced, const OnAdvance& passed, std::span<float> out);
};

/// Computes log-probs of the reference and, if the batch lacks old log-probs, of `start`, the policy that the update started from. Then
/// computes the policy's log-probs and the loss, and adds the gradient to `out`.
LossReport Trainer::State::gradient(const Policy& policy, const Policy& start, const MiniBatch& mini, const UpdateSettings& settings,
                                    const OnAdvance& advanced, const OnAdvance& passed, std::span<float> out) {
  const float temperature = float(settings.temperature);
  const auto score_with = [&](const Policy& other, std::vector<float>& logprobs) {
    logprobs.resize(mini.target_rows.size());
    pass->begin(other, mini.forest, mini.target_rows, mini.target_tokens, temperature, advanced, passed);
    pass->logprobs(logprobs);
  };
  reference_logprobs.clear();
  if (settings.loss.wants_reference()) score_with(Policy::frozen(settings.reference), reference_logprobs);
  const bool has_old = !mini.old_logprobs.empty(), is_start = &policy == &start;
  if (!has_old && !is_start) score_with(start, old_logprobs);
  LossReport report;
  const auto derive = [&](std::span<const float> logprobs, std::span<const float> entropies, std::span<double> derivatives,
                          std::span<double> entropy_derivatives) {
    LossInputs inputs;
    inputs.logprobs = logprobs;
    inputs.old_logprobs = has_old ? mini.old_logprobs : is_start ? logprobs : std::span<const float>(old_logprobs);
    inputs.advantages = mini.advantages;
    inputs.samples = mini.target_samples;
    inputs.rollout_logprobs = mini.rollout_logprobs;
    inputs.reference_logprobs = reference_logprobs;
    inputs.entropies = entropies;
    report = compute_loss(settings.loss, inputs, derivatives, entropy_derivatives);
    if (!has_old) report.max_difference = largest_difference(logprobs, mini.rollout_logprobs);
  };
  pass->begin(policy, mini.forest, mini.target_rows, mini.target_tokens, temperature, advanced, passed);
  pass->gradient(derive, settings.loss.entropy_weight != 0, out);
  return report;
}

UpdateReport Trainer::State::update(const Policy& policy, const Batch& batch, const UpdateSettings& settings) {
  const int mini_batches = int(settings.learning_rates.size());
  const std::vector<int> rows = rows_of_mini_batches(batch, settings.learning_rates.size());
  const int total = count_work(rows, settings, !batch.target_old_logprobs.empty());
  int done = 0;
  const OnAdvance advanced = [&] {
    if (settings.advanced) settings.advanced();
    if (settings.cancelled && settings.cancelled->load(std::memory_order_relaxed)) throw CancelledUpdate{};
  };
  const OnAdvance passed = [&] {
    if (settings.progress) settings.progress(++done, total);
    if (settings.cancelled && settings.cancelled->load(std::memory_order_relaxed)) throw CancelledUpdate{};
  };
  prepare_pass(settings.passes, *std::max_element(rows.begin(), rows.end()));
  std::unique_ptr<Policy> next = place_for_next(policy);
  // The first step reads the held policy and writes `next`, so nothing is copied; all later steps work in `next`.
  const Policy* from = &policy;
  Totals totals;
  const auto give_up = [&](const char* reason) {
    spare = std::move(next);
    return UpdateReport{false, nullptr, reason, {}};
  };
  try {
    for (int k = 0; k < mini_batches; ++k) {
      const MiniBatch mini = mini_batch_of(batch, k);
      const std::span<float> gradients = zero_gradients(from->trained().size());
      pass->weights_changed();
      const LossReport report = gradient(*from, policy, mini, settings, advanced, passed, gradients);
      const double norm = gradient_norm(*from, gradients, pool);
      if (!std::isfinite(norm) || !std::isfinite(report.loss)) return give_up("non_finite");
      optimizer_step(*next, *from, k == 0 && settings.reset_moments, gradients, norm, settings.learning_rates[size_t(k)],
                     settings.optimizer, pool);
      from = next.get();
      passed();
      totals.add(report, mini, norm, k == 0);
    }
  } catch (const CancelledUpdate&) {
    return give_up("cancelled");
  }
  return {true, std::move(next), "", totals.metrics(settings.loss, mini_batches)};
}

Trainer::Trainer(ThreadPool& pool) : state_(std::make_unique<State>(pool)) {}

Trainer::~Trainer() = default;

UpdateReport Trainer::update(const Policy& policy, const Batch& batch, const UpdateSettings& settings) {
  check(settings);
  check_reference(policy, settings);
  return state_->update(policy, batch, settings);
}

void Trainer::recycle(std::unique_ptr<Policy> spent) { state_->spare = std::move(spent); }

UpdateReport compute_update(const Policy& policy, const Batch& batch, const UpdateSettings& settings, ThreadPool& pool) {
  Trainer trainer(pool);
  return trainer.update(policy, batch, settings);
}

}  // namespace longhaul
