// One step's update: metrics, several mini-batches, resumption, all or nothing, progress, errors. optimizer_test.cc tests its arithmetic.
#include "train/update.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <new>
#include <utility>

#include "support/cpu.h"
#include "support/every_set.h"
#include "backend/cpu_training.h"
#include "train/score.h"
#include "support/updates.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr int vocab = 71;

void cross_entropy_is_the_mean_over_all_targets() {
  Policy policy = tiny_policy();
  ThreadPool pool(2);
  const std::vector<int32_t> first = random_tokens(12, vocab, 1), second = random_tokens(30, vocab, 2);
  OwnedBatch batch;
  batch.add_node(-1, first, 0);
  batch.add_node(-1, second, 0);
  double expected = 0;
  const std::vector<float> scores[] = {score(policy, first, 1, cpu(pool)), score(policy, second, 1, cpu(pool))};
  for (int i = 1; i < 12; ++i) {
    batch.add_target(i - 1, first[size_t(i)], 1, 0, 0);
    expected -= scores[0][size_t(i) - 1];
  }
  for (int i = 1; i < 30; ++i) {
    batch.add_target(12 + i - 1, second[size_t(i)], 1, 0, 1);
    expected -= scores[1][size_t(i) - 1];
  }
  const auto metrics = metrics_of(apply_update(policy, batch.view(), cross_entropy_settings(1e-3), pool));
  check_near(metrics.at("loss"), expected / 40, 1e-12, "loss");
  check_equal(metrics.at("targets"), 40.0, "targets");
  check_equal(metrics.at("rows"), 42.0, "rows");
  check_equal(metrics.at("max_logprob_difference"), 0.0, "log-prob difference of cross-entropy");
  check(!metrics.contains("kl") && !metrics.contains("tis_weight"), "metrics of what is in use alone");
}

/// One of two equal halves of a batch with two mini-batches, as a separate batch.
OwnedBatch half_of(const OwnedBatch& both, int half) {
  const size_t nodes = both.nodes.size() / 2, tokens = both.tokens.size() / 2, targets = both.target_rows.size() / 2;
  OwnedBatch batch;
  batch.nodes.assign(both.nodes.begin() + std::ptrdiff_t(half * nodes), both.nodes.begin() + std::ptrdiff_t((half + 1) * nodes));
  for (size_t i = 0; i < nodes; i += 3) {
    if (batch.nodes[i] >= 0) batch.nodes[i] -= int32_t(half * nodes / 3);
    batch.nodes[i + 2] = 0;
  }
  batch.tokens.assign(both.tokens.begin() + std::ptrdiff_t(half * tokens), both.tokens.begin() + std::ptrdiff_t((half + 1) * tokens));
  for (size_t i = half * targets; i < (half + 1) * targets; ++i)
    batch.add_target(both.target_rows[i] - int(half * tokens), both.target_tokens[i], both.advantages[i], both.old_logprobs[i],
                     both.target_samples[i] - both.target_samples[half * targets]);
  return batch;
}

void mini_batches_are_updates_in_turn() {
  ThreadPool pool(2);
  const OwnedBatch both = group_batch(vocab, 2, 4, 33, 2, 17);
  UpdateSettings settings = policy_settings({1e-2, 3e-3}), first = policy_settings({1e-2}), second = policy_settings({3e-3});
  for (UpdateSettings* one : {&settings, &first, &second}) {
    one->loss.kind = LossKind::gspo;
    one->loss.reduction = LossReduction::sequence_mean;
  }
  for (auto& [name, policy] : policies_to_train()) {
    // This update leaves moments that a reset can clear. A reset happens once, before the first mini-batch.
    apply_update(policy, group_batch(vocab, 1, 2, 20, 2, 12).view(), policy_settings({1e-2}), pool);
    for (const bool reset : {false, true}) {
      settings.reset_moments = first.reset_moments = reset;
      const std::string what = name + (reset ? ", reset" : "");
      Policy at_once = policy, in_turn = policy;
      apply_update(at_once, both.view(), settings, pool);
      apply_update(in_turn, half_of(both, 0).view(), first, pool);
      apply_update(in_turn, half_of(both, 1).view(), second, pool);
      check_same_bits(state_of(at_once), state_of(in_turn), what + ": state");
      check_equal(at_once.optimizer_steps, int64_t(reset ? 2 : 3), what + ": optimizer steps");
    }
  }
}

/// n steps with one trainer equal k steps, then n − k steps in a new process (a copy of the state and a new trainer).
void a_resumed_run_takes_the_same_steps() {
  for (const auto& [name, start] : policies_to_train()) {
    ThreadPool pool(2), other_pool(3);
    Trainer trainer(cpu(pool));
    std::unique_ptr<Policy> held = std::make_unique<Policy>(start);
    Policy resumed = start;
    for (int step = 0; step < 5; ++step) {
      // Batches of different sizes, so that memory is partly reused.
      const OwnedBatch batch = group_batch(vocab, 1 + step % 2, 1 + step % 3, 20 + 7 * step, 2, 12);
      UpdateSettings settings = policy_settings(std::vector<double>(size_t(1 + step % 2), 1e-2));
      UpdateReport report = trainer.update(*held, batch.view(), settings);
      metrics_of(report);
      trainer.recycle(std::exchange(held, std::move(report.next)));
      if (step == 2) {
        Policy loaded = start;
        std::copy(resumed.trained().begin(), resumed.trained().end(), loaded.trained().begin());
        loaded.moments() = resumed.moments();
        loaded.optimizer_steps = resumed.optimizer_steps;
        loaded.changed();
        resumed = loaded;
      }
      settings.passes = {512, step % 2 == 0};
      apply_update(resumed, batch.view(), settings, step < 2 ? pool : other_pool);
      check_same_bits(state_of(resumed), state_of(*held), name + ": state after step " + std::to_string(step));
    }
  }
}

void kl_is_zero_at_the_reference_and_pulls_towards_it() {
  ThreadPool pool(2);
  const OwnedBatch batch = group_batch(vocab, 1, 3, 20, 2, 12);
  for (const bool lora : {false, true}) {
    Policy policy = lora ? tiny_lora_policy() : tiny_policy();
    const std::shared_ptr<const Weights> reference = lora ? policy.shared_weights() : std::make_shared<Weights>(policy.weights());
    UpdateSettings settings = policy_settings({2e-2});
    check_equal(metrics_of(compute_update(policy, batch.view(), settings, cpu(pool))).count("kl"), size_t{0}, "kl without a weight");
    settings.loss.kl_weight = 1e-9;
    settings.reference = reference;
    const double at_first = metrics_of(compute_update(policy, batch.view(), settings, cpu(pool))).at("kl");
    if (lora)
      check(at_first > 1e-3, "adapters that do something differ from their base: " + std::to_string(at_first));
    else
      check_equal(at_first, 0.0, "kl of the reference to itself");
    for (int i = 0; i < 4; ++i) apply_update(policy, batch.view(), settings, pool);
    const double away = metrics_of(compute_update(policy, batch.view(), settings, cpu(pool))).at("kl");
    check(away > 1e-3, "the policy moved away: " + std::to_string(away));
    settings.loss.kl_weight = 1e3;
    for (int i = 0; i < 6; ++i) apply_update(policy, batch.view(), settings, pool);
    const double back = metrics_of(compute_update(policy, batch.view(), settings, cpu(pool))).at("kl");
    check(back < 0.5 * away, "the policy came back: from " + std::to_string(away) + " to " + std::to_string(back));
    settings.reference = nullptr;
    check_throws<std::invalid_argument>([&] { compute_update(policy, batch.view(), settings, cpu(pool)); }, "no reference", "no reference");
    settings.reference = tiny_weights(1, tiny_architectures()[1].second);
    check_throws<std::invalid_argument>([&] { compute_update(policy, batch.view(), settings, cpu(pool)); }, "another architecture", "another model");
  }
}

void entropy_and_importance_weights_are_reported() {
  ThreadPool pool(2);
  OwnedBatch batch = group_batch(vocab, 2, 2, 20, 2, 12);
  for (const float old : batch.old_logprobs) batch.rollout_logprobs.push_back(old + std::log(2.0f));
  Policy policy = tiny_policy();
  UpdateSettings settings = policy_settings({1e-3, 1e-3});
  settings.loss.entropy_weight = 0.01;
  settings.loss.tis_cap = 2;
  const auto metrics = metrics_of(compute_update(policy, batch.view(), settings, cpu(pool)));
  check(metrics.at("entropy") > 0.1 && metrics.at("entropy") < std::log(double(vocab)), "entropy in nats");
  check_near(metrics.at("tis_weight"), 0.5, 1e-6, "importance weight");
}

/// Mean entropy of all targets of a batch with two mini-batches, in nats.
double mean_entropy(const Policy& policy, const Batch& batch) {
  ThreadPool pool(1);
  double sum = 0, targets = 0;
  for (int k = 0; k < 2; ++k) {
    const MiniBatch mini = mini_batch_of(batch, k);
    CpuTraining pass(CpuDevice(pool, arithmetic()));
    std::vector<float> logprobs(mini.target_rows.size()), entropies(mini.target_rows.size());
    pass.begin(policy, mini.forest, mini.target_rows, mini.target_tokens, 1);
    pass.logprobs(logprobs, entropies);
    for (const float entropy : entropies) sum += double(entropy);
    targets += double(entropies.size());
  }
  return sum / targets;
}

/// The entropy is the same with and without a bonus, on every instruction set, for any number of threads and any pass size.
void entropy_is_always_reported() {
  Architecture long_enough = tiny_architecture();
  long_enough.max_position_embeddings = 2048;
  const OwnedBatch batch = group_batch(vocab, 2, 3, 150, 2, 60);
  const Policy policy = tiny_policy(7, long_enough);
  const double expected = mean_entropy(policy, batch.view());
  for (const int threads : {1, 3})
    for (const int pass_rows : {512, 1 << 30})
      for_each_instruction_set([&](const ops::Table& table) {
        ThreadPool pool(threads);
        UpdateSettings settings = policy_settings({0.0, 0.0});
        settings.passes.pass_rows = pass_rows;
        settings.passes.recompute = pass_rows == 512;
        settings.loss.entropy_weight = threads == 1 ? 0.01 : 0;
        const double entropy = metrics_of(compute_update(policy, batch.view(), settings, cpu(pool))).at("entropy");
        check_near(entropy, expected, 1e-14, std::string("entropy on ") + table.name);
      });
  ThreadPool pool(2);
  UpdateSettings imitation = cross_entropy_settings(0.0);
  imitation.learning_rates = {0.0, 0.0};
  check_near(metrics_of(compute_update(policy, batch.view(), imitation, cpu(pool))).at("entropy"), expected, 1e-14, "of imitation");
}

/// The batch was sampled by another policy. Ratios compare with the policy that the update starts from; importance weights correct for the
/// policy that sampled.
void missing_old_logprobs_are_those_of_the_starting_policy() {
  ThreadPool pool(2);
  for (const auto& [name, policy] : policies_to_train()) {
    OwnedBatch given = group_batch(vocab, 3, 2, 20, 2, 12);
    given.old_logprobs = logprobs_under(policy, given.view(), 3, pool);
    for (size_t i = 0; i < given.old_logprobs.size(); ++i) given.rollout_logprobs.push_back(given.old_logprobs[i] + (i % 3 ? 0.2f : -0.9f));
    OwnedBatch left_out = given;
    left_out.old_logprobs.clear();
    UpdateSettings settings = policy_settings({1e-2, 1e-2, 1e-2});
    settings.loss.tis_cap = 2;
    int last = 0, of = 0;
    const UpdateReport expected = compute_update(policy, given.view(), settings, cpu(pool));
    settings.progress = [&](int done, int total) { last = done, of = total; };
    const UpdateReport report = compute_update(policy, left_out.view(), settings, cpu(pool));
    check_same_bits(state_of(*report.next), state_of(*expected.next), name + ": state");
    check_equal(last, of, name + ": passes");
    check_near(metrics_of(report).at("tis_weight"), (2 * std::exp(-0.2) + 2) / 3, 1e-3, name + ": importance weight");
    check_near(metrics_of(report).at("max_logprob_difference"), 0.9, 1e-4, name + ": log-probs at sampling are used");
    check_equal(metrics_of(expected).at("max_logprob_difference"), 0.0, name + ": the old ones are the policy's");
  }
}

void non_finite_update_leaves_everything_as_it_was() {
  ThreadPool pool(2);
  // The ratio of the second mini-batch overflows, after the first mini-batch has been applied.
  OwnedBatch batch = group_batch(vocab, 2, 2, 20, 2, 12);
  batch.old_logprobs.back() = -1e6f;
  batch.advantages.back() = -1;
  Policy policy = tiny_policy();
  apply_update(policy, group_batch(vocab, 1, 2, 20, 2, 12).view(), policy_settings({1e-3}), pool);
  const std::vector<float> before = state_of(policy);
  const std::vector<float> scored = score(policy, random_tokens(30, vocab, 1), 1, cpu(pool));
  UpdateSettings settings = policy_settings({1e-2, 1e-2});
  settings.reset_moments = true;
  Trainer trainer(cpu(pool));
  const UpdateReport report = trainer.update(policy, batch.view(), settings);
  check(!report.applied && !report.next, "not applied");
  check_equal(report.reason, std::string("non_finite"), "reason");
  check_same_bits(state_of(policy), before, "state");
  check_same_bits(score(policy, random_tokens(30, vocab, 1), 1, cpu(pool)), scored, "log-probs");
  // Memory that the trainer kept from it does not affect the next update.
  batch.old_logprobs.back() = -3.5f;
  Policy undisturbed = policy;
  const UpdateReport next = trainer.update(policy, batch.view(), settings);
  apply_update(undisturbed, batch.view(), settings, pool);
  metrics_of(next);
  check_same_bits(state_of(*next.next), state_of(undisturbed), "state after the next update");
}

/// A clipped target has no gradient, whatever its loss is.
void non_finite_loss_is_not_applied_though_its_gradient_is_finite() {
  ThreadPool pool(1);
  OwnedBatch batch = group_batch(vocab, 1, 2, 20, 2, 12);
  UpdateSettings settings = policy_settings({1e-2});
  settings.loss.eps_clip_high = 1e308;
  const Policy policy = tiny_policy();
  check(std::isfinite(metrics_of(compute_update(policy, batch.view(), settings, cpu(pool))).at("loss")), "a bound that nothing reaches");
  batch.old_logprobs.back() = -1e6f;
  batch.advantages.back() = 1000;
  const UpdateReport report = compute_update(policy, batch.view(), settings, cpu(pool));
  check(!report.applied && !report.next, "not applied");
  check_equal(report.reason, std::string("non_finite"), "reason");
}

void cancelled_update_leaves_everything_as_it_was() {
  ThreadPool pool(2);
  Policy policy = tiny_policy();
  const std::vector<float> before = state_of(policy);
  const OwnedBatch batch = group_batch(vocab, 2, 2, 20, 2, 12);
  // Cancelled between two passes (0), and between two layers (3, 9).
  for (const int after_layers : {0, 3, 9}) {
    UpdateSettings settings = policy_settings({1e-2, 1e-2});
    std::atomic<bool> cancelled{false};
    int layers = 0;
    settings.cancelled = &cancelled;
    if (after_layers == 0)
      settings.progress = [&](int done, int total) { cancelled = done > total / 2; };
    else
      settings.advanced = [&] { cancelled = ++layers >= after_layers; };
    const UpdateReport report = apply_update(policy, batch.view(), settings, pool);
    check_equal(report.reason, std::string("cancelled"), "reason");
    check_same_bits(state_of(policy), before, "state");
    if (after_layers > 0) check_equal(layers, after_layers, "nothing more is done");
  }
}

void progress_counts_passes_and_the_work_advances_within_them() {
  Architecture deep = tiny_architecture();
  deep.num_hidden_layers = 5;
  deep.max_position_embeddings = 2048;
  const OwnedBatch batch = group_batch(vocab, 2, 3, 150, 2, 60);  // 810 rows per mini-batch
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    Policy policy = tiny_policy(7, deep);
    std::vector<int> done;
    int advances = 0;
    UpdateSettings settings = policy_settings({1e-3, 1e-3});
    settings.passes.pass_rows = 512;
    settings.advanced = [&] { ++advances; };
    settings.progress = [&](int now, int total) {
      check_equal(total, 10, "two passes forward, two backward and a step for each mini-batch");
      done.push_back(now);
    };
    apply_update(policy, batch.view(), settings, pool);
    check(done == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, "everything is told once, in order");
    // For each mini-batch: 2 forward passes of 5 layers and the head, one pass's layers again, 2 backward passes of the head and 5 layers.
    check_equal(advances, 2 * (2 * 6 + 5 + 2 * 6), "advances");
  }
}

void scoring_advances_layer_by_layer() {
  const Policy policy = tiny_policy();
  ThreadPool pool(2);
  int advances = 0;
  score(policy, random_tokens(250, vocab, 1), 1, cpu(pool), [&] { ++advances; });
  check_equal(advances, 2 + 1, "two layers and the head");
}

// An exception as if memory ran out.
void an_update_that_throws_in_its_second_mini_batch_changes_nothing() {
  const OwnedBatch batch = group_batch(vocab, 2, 3, 20, 2, 12);
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    Trainer trainer(cpu(pool));
    Policy policy = tiny_policy(), undisturbed = tiny_policy();
    const std::vector<float> before = state_of(policy);
    UpdateSettings settings = policy_settings({1e-2, 1e-2});
    settings.reset_moments = true;
    settings.progress = [](int done, int total) {
      if (done > total / 2) throw std::bad_alloc();
    };
    check_throws<std::bad_alloc>([&] { trainer.update(policy, batch.view(), settings); }, "bad_alloc", "a throwing update");
    check_same_bits(state_of(policy), before, "state");
    settings.progress = nullptr;
    const UpdateReport report = trainer.update(policy, batch.view(), settings);
    apply_update(undisturbed, batch.view(), settings, pool);
    metrics_of(report);
    check_same_bits(state_of(*report.next), state_of(undisturbed), "state after the next update");
  }
}

void bad_settings_are_refused() {
  Policy policy = tiny_policy();
  ThreadPool pool(1);
  const OwnedBatch batch = group_batch(vocab, 1, 1, 20, 2, 12);
  const auto refused = [&](const std::function<void(UpdateSettings&)>& spoil, const std::string& part) {
    UpdateSettings settings = policy_settings({1e-3});
    spoil(settings);
    check_throws<std::invalid_argument>([&] { apply_update(policy, batch.view(), settings, pool); }, part, part);
  };
  refused([](UpdateSettings& s) { s.learning_rates.clear(); }, "learning_rates");
  refused([](UpdateSettings& s) { s.learning_rates[0] = -1; }, "learning_rates");
  refused([](UpdateSettings& s) { s.optimizer.beta2 = 1; }, "adam_betas");
  refused([](UpdateSettings& s) { s.temperature = 0; }, "temperature");
  refused([](UpdateSettings& s) { s.optimizer.max_grad_norm = 0; }, "max_grad_norm");
  refused([](UpdateSettings& s) { s.passes.pass_rows = 700; }, "pass_rows");
  refused([](UpdateSettings& s) { s.loss.eps_clip_low = 2; }, "eps_clip_low");
}

}  // namespace

int main() {
  return run({{"cross-entropy is the mean over all targets", cross_entropy_is_the_mean_over_all_targets},
              {"mini-batches are updates in turn", mini_batches_are_updates_in_turn},
              {"a resumed run takes the same steps", a_resumed_run_takes_the_same_steps},
              {"KL is zero at the reference and pulls towards it", kl_is_zero_at_the_reference_and_pulls_towards_it},
              {"entropy and importance weights are reported", entropy_and_importance_weights_are_reported},
              {"entropy is always reported", entropy_is_always_reported},
              {"missing old log-probs are those of the starting policy", missing_old_logprobs_are_those_of_the_starting_policy},
              {"a non-finite update leaves everything as it was", non_finite_update_leaves_everything_as_it_was},
              {"a non-finite loss is not applied, even if its gradient is finite", non_finite_loss_is_not_applied_though_its_gradient_is_finite},
              {"a cancelled update leaves everything as it was", cancelled_update_leaves_everything_as_it_was},
              {"progress counts passes, and the work advances within them", progress_counts_passes_and_the_work_advances_within_them},
              {"scoring advances layer by layer", scoring_advances_layer_by_layer},
              {"an update that throws in its second mini-batch changes nothing", an_update_that_throws_in_its_second_mini_batch_changes_nothing},
              {"bad settings are refused", bad_settings_are_refused}});
}
