// One step's update: the losses, AdamW against double precision, all or nothing, errors.
#include "train/update.h"

#include <limits>
#include <map>
#include <new>

#include "check.h"
#include "policies.h"
#include "train/score.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr int vocab = 71;

UpdateSettings policy_settings(std::vector<double> rates) {
  UpdateSettings settings;
  settings.learning_rates = std::move(rates);
  settings.beta1 = 0.9;
  settings.beta2 = 0.98;
  settings.weight_decay = 0.1;
  settings.loss.kind = LossKind::clipped_policy;
  return settings;
}

std::map<std::string, double> metrics_of(const UpdateReport& report) {
  check(report.applied, "applied: " + report.reason);
  return {report.metrics.begin(), report.metrics.end()};
}

std::vector<float> state_of(const Policy& policy) {
  std::vector<float> state(policy.weights().begin(), policy.weights().end());
  state.insert(state.end(), policy.first_moments().begin(), policy.first_moments().end());
  state.insert(state.end(), policy.second_moments().begin(), policy.second_moments().end());
  return state;
}

void loss_cases() {
  const LossSettings clip{LossKind::clipped_policy, 0.2, 0.28};
  const float old = -1.0f;
  const auto at = [&](double ratio, float advantage) { return target_loss(clip, float(old + std::log(ratio)), old, advantage); };
  check_equal(target_loss(clip, old, old, 2.0f).ratio, 1.0, "ratio on policy");
  check_equal(target_loss(clip, old, old, 2.0f).derivative, -2.0, "derivative on policy");
  check_near(at(1.1, 2).loss, -2.2, 1e-6, "unclipped loss");
  check_near(at(1.1, 2).derivative, -2.2, 1e-6, "unclipped derivative");
  check_near(at(1.5, 2).loss, -2.56, 1e-6, "clipped above");
  check_equal(at(1.5, 2).derivative, 0.0, "no gradient above the clip");
  check(at(1.5, 2).clipped && !at(1.27, 2).clipped, "clipped is reported");
  check_near(at(1.5, -2).loss, 3.0, 1e-6, "a worse action made likelier is not clipped");
  check_near(at(1.5, -2).derivative, 3.0, 1e-6, "and keeps its gradient");
  check_near(at(0.5, -2).loss, 1.6, 1e-6, "clipped below");
  check_equal(at(0.5, -2).derivative, 0.0, "no gradient below the clip");
  check_near(at(0.5, 2).derivative, -1.0, 1e-6, "a better action made less likely is not clipped");
  check_equal(at(1.5, 0).derivative, 0.0, "no advantage, no gradient");
  const TargetLoss entropy = target_loss({}, -1.5f, 0, 1);
  check_equal(entropy.loss, 1.5, "cross-entropy");
  check_equal(entropy.derivative, -1.0, "cross-entropy derivative");
}

void cross_entropy_is_the_mean_over_all_shards() {
  Policy policy = tiny_policy();
  ThreadPool pool(2);
  const std::vector<int32_t> first = random_tokens(12, vocab, 1), second = random_tokens(30, vocab, 2);
  OwnedBatch batch;
  batch.add_node(-1, first, 0, 1);
  batch.add_node(-1, second, 0, 6);
  double expected = 0;
  const std::vector<float> scores[] = {score(policy, first, 1), score(policy, second, 1)};
  for (int i = 1; i < 12; ++i) {
    batch.add_target(i - 1, first[i], 1, 0, 0, 1);
    expected -= scores[0][i - 1];
  }
  for (int i = 1; i < 30; ++i) {
    batch.add_target(12 + i - 1, second[i], 1, 0, 0, 6);
    expected -= scores[1][i - 1];
  }
  UpdateSettings settings;
  settings.learning_rates = {1e-3};
  const auto metrics = metrics_of(apply_update(policy, batch.view(), settings, pool));
  check_near(metrics.at("loss"), expected / 40, 1e-12, "loss");
  check_equal(metrics.at("targets"), 40.0, "targets");
  check_equal(metrics.at("rows"), 42.0, "rows");
  check_equal(metrics.at("max_logprob_difference"), 0.0, "log-prob difference of cross-entropy");
}

void repeated_updates_learn_a_sequence() {
  Policy policy = tiny_policy();
  ThreadPool pool(2);
  const std::vector<int32_t> tokens = random_tokens(40, vocab, 3);
  OwnedBatch batch;
  batch.add_node(-1, tokens, 0, 0);
  for (int i = 1; i < 40; ++i) batch.add_target(i - 1, tokens[i], 1, 0, 0, 0);
  UpdateSettings settings;
  settings.learning_rates = {1e-2};
  double loss = 0;
  for (int i = 0; i < 60; ++i) loss = metrics_of(apply_update(policy, batch.view(), settings, pool)).at("loss");
  check(loss < 0.05, "loss after 60 updates is " + std::to_string(loss));
}

// AdamW in double precision, fed with the gradient that the first moment of a step without history shows.
void adamw_matches_double_precision() {
  ThreadPool pool(1);
  const OwnedBatch batch = group_batch(vocab, 1, 3, 20, 2, 12);
  UpdateSettings settings = policy_settings({1e-2});
  settings.max_grad_norm = 0.05;
  Policy policy = tiny_policy();
  std::vector<double> weights(policy.weights().begin(), policy.weights().end()), first(weights.size()), second(weights.size());
  std::vector<bool> decayed(weights.size());
  for (const NamedTensor<float>& tensor : policy.tensors())
    if (tensor.shape.size() == 2 && tensor.name != "model.embed_tokens.weight" && tensor.name.starts_with("model."))
      std::fill_n(decayed.begin() + (tensor.values.data() - policy.weights().data()), tensor.values.size(), true);
  for (int t = 1; t <= 3; ++t) {
    const std::vector<float> before(policy.first_moments().begin(), policy.first_moments().end());
    apply_update(policy, batch.view(), settings, pool);
    double squares = 0, greatest_move = 0, greatest_error = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double gradient = (double(policy.first_moments()[i]) - double(0.9f) * before[i]) / double(0.1f);
      squares += gradient * gradient;
      first[i] = 0.9 * first[i] + 0.1 * gradient;
      second[i] = 0.98 * second[i] + 0.02 * gradient * gradient;
      const double was = weights[i];
      weights[i] *= 1 - 1e-2 * (decayed[i] ? 0.1 : 0.0);
      weights[i] -= 1e-2 * (first[i] / (1 - std::pow(0.9, t))) / (std::sqrt(second[i] / (1 - std::pow(0.98, t))) + 1e-8);
      // Where the gradient is nothing but rounding, so is its direction.
      if (std::abs(gradient) < 1e-6) {
        weights[i] = policy.weights()[i];
        continue;
      }
      greatest_move = std::max(greatest_move, std::abs(weights[i] - was));
      greatest_error = std::max(greatest_error, std::abs(weights[i] - double(policy.weights()[i])));
    }
    check_near(std::sqrt(squares), 0.05, 1e-4, "norm of the clipped gradient at step " + std::to_string(t));
    check(greatest_move > 5e-3, "weights moved");
    check(greatest_error < 2e-3 * greatest_move, "error " + std::to_string(greatest_error) + " of moves up to " + std::to_string(greatest_move));
  }
  check_equal(policy.optimizer_steps, int64_t(3), "optimizer steps");
}

void gradient_below_the_norm_is_not_scaled() {
  ThreadPool pool(1);
  const OwnedBatch batch = group_batch(vocab, 1, 2, 20, 2, 12);
  UpdateSettings loose = policy_settings({1e-3}), looser = loose;
  loose.max_grad_norm = 1e6;
  looser.max_grad_norm = 1e9;
  Policy a = tiny_policy(), b = tiny_policy();
  apply_update(a, batch.view(), loose, pool);
  apply_update(b, batch.view(), looser, pool);
  check_same_bits(state_of(a), state_of(b), "state");
}

void mini_batches_are_updates_in_turn() {
  ThreadPool pool(2);
  const OwnedBatch both = group_batch(vocab, 2, 4, 33, 2, 17);
  Policy at_once = tiny_policy(), in_turn = tiny_policy();
  apply_update(at_once, both.view(), policy_settings({1e-2, 3e-3}), pool);
  // Each half as a batch of its own.
  const Batch view = both.view();
  const size_t nodes = both.nodes.size() / 2, tokens = both.tokens.size() / 2, targets = both.target_rows.size() / 2;
  OwnedBatch second;
  second.nodes.assign(both.nodes.begin() + nodes, both.nodes.end());
  for (size_t i = 0; i < nodes; i += 4) {
    if (second.nodes[i] >= 0) second.nodes[i] -= int32_t(nodes / 4);
    second.nodes[i + 2] = 0;
  }
  second.tokens.assign(both.tokens.begin() + tokens, both.tokens.end());
  for (size_t i = targets; i < 2 * targets; ++i)
    second.add_target(both.target_rows[i] - int(tokens), both.target_tokens[i], both.advantages[i], both.old_logprobs[i], 0,
                      both.target_shards[2 * i + 1]);
  const Batch first{view.nodes.first(nodes), view.tokens.first(tokens), view.target_rows.first(targets), view.target_tokens.first(targets),
                    view.target_advantages.first(targets), view.target_old_logprobs.first(targets), view.target_shards.first(2 * targets)};
  apply_update(in_turn, first, policy_settings({1e-2}), pool);
  apply_update(in_turn, second.view(), policy_settings({3e-3}), pool);
  check_same_bits(state_of(at_once), state_of(in_turn), "state");
  check_equal(at_once.optimizer_steps, int64_t(2), "optimizer steps");
}

void reset_moments_forgets_history() {
  ThreadPool pool(1);
  const OwnedBatch batch = group_batch(vocab, 1, 2, 20, 2, 12);
  Policy used = tiny_policy();
  apply_update(used, batch.view(), policy_settings({1e-2}), pool);
  Policy fresh = used;
  std::fill(fresh.first_moments().begin(), fresh.first_moments().end(), 0.0f);
  std::fill(fresh.second_moments().begin(), fresh.second_moments().end(), 0.0f);
  fresh.optimizer_steps = 0;
  UpdateSettings reset = policy_settings({1e-3});
  apply_update(fresh, batch.view(), reset, pool);
  reset.reset_moments = true;
  apply_update(used, batch.view(), reset, pool);
  check_same_bits(state_of(used), state_of(fresh), "state");
  check_equal(used.optimizer_steps, int64_t(1), "optimizer steps");
}

void non_finite_update_leaves_everything_as_it_was() {
  ThreadPool pool(2);
  // The ratio of the second mini-batch overflows: the first has been applied by then.
  OwnedBatch batch = group_batch(vocab, 2, 2, 20, 2, 12);
  batch.old_logprobs.back() = -1e6f;
  batch.advantages.back() = -1;
  Policy policy = tiny_policy();
  apply_update(policy, group_batch(vocab, 1, 2, 20, 2, 12).view(), policy_settings({1e-3}), pool);
  const std::vector<float> before = state_of(policy);
  const std::vector<float> scored = score(policy, random_tokens(30, vocab, 1), 1);
  UpdateSettings settings = policy_settings({1e-2, 1e-2});
  settings.reset_moments = true;
  const UpdateReport report = apply_update(policy, batch.view(), settings, pool);
  check(!report.applied, "not applied");
  check_equal(report.reason, std::string("non_finite"), "reason");
  check_same_bits(state_of(policy), before, "state");
  check_equal(policy.optimizer_steps, int64_t(1), "optimizer steps");
  check_same_bits(score(policy, random_tokens(30, vocab, 1), 1), scored, "log-probs");
}

void cancelled_update_leaves_everything_as_it_was() {
  ThreadPool pool(2);
  Policy policy = tiny_policy();
  const std::vector<float> before = state_of(policy);
  UpdateSettings settings = policy_settings({1e-2, 1e-2});
  std::atomic<bool> cancelled{false};
  settings.cancelled = &cancelled;
  settings.progress = [&](int done, int total) { cancelled = done > total / 2; };
  const UpdateReport report = apply_update(policy, group_batch(vocab, 2, 2, 20, 2, 12).view(), settings, pool);
  check_equal(report.reason, std::string("cancelled"), "reason");
  check_same_bits(state_of(policy), before, "state");
}

void progress_counts_shards_and_the_work_advances_within_them() {
  Architecture deep = tiny_architecture();
  deep.num_hidden_layers = 5;
  const OwnedBatch batch = group_batch(vocab, 2, 3, 20, 2, 12);
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    Policy policy = tiny_policy(7, deep);
    std::vector<int> done;
    std::atomic<int> advances{0};
    UpdateSettings settings = policy_settings({1e-3, 1e-3});
    settings.advanced = [&] { ++advances; };
    settings.progress = [&](int now, int total) {
      check_equal(total, 6, "all shards of both mini-batches");
      // Between two calls at least one shard was computed: 5 layers forward, the head, 5 layers backward.
      check(advances >= 11 * now, "advances before shard " + std::to_string(now) + ": " + std::to_string(advances));
      done.push_back(now);
    };
    apply_update(policy, batch.view(), settings, pool);
    check(done == std::vector<int>{1, 2, 3, 4, 5, 6}, "every shard is told once, in order");
    check_equal(advances.load(), 66, "advances");
  }
}

void scoring_advances_layer_by_layer() {
  const Policy policy = tiny_policy();
  int advances = 0;
  score(policy, random_tokens(250, vocab, 1), 1, [&] { ++advances; });
  check_equal(advances, 2 + 2, "two layers, and two pieces of at most 192 targets");
}

// As memory that runs out does.
void update_that_throws_in_its_second_mini_batch_never_happened() {
  const OwnedBatch batch = group_batch(vocab, 2, 3, 20, 2, 12);
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    Policy policy = tiny_policy(), undisturbed = tiny_policy();
    const std::vector<float> before = state_of(policy);
    UpdateSettings settings = policy_settings({1e-2, 1e-2});
    settings.reset_moments = true;
    settings.progress = [](int done, int total) {
      if (done > total / 2) throw std::bad_alloc();
    };
    check_throws<std::bad_alloc>([&] { apply_update(policy, batch.view(), settings, pool); }, "bad_alloc", "a throwing update");
    check_same_bits(state_of(policy), before, "state");
    check_equal(policy.optimizer_steps, int64_t(0), "optimizer steps");
    settings.progress = nullptr;
    apply_update(policy, batch.view(), settings, pool);
    apply_update(undisturbed, batch.view(), settings, pool);
    check_same_bits(state_of(policy), state_of(undisturbed), "state after the next update");
  }
}

void zero_advantages_leave_weights_without_decay() {
  ThreadPool pool(1);
  OwnedBatch batch = group_batch(vocab, 1, 2, 20, 2, 12);
  for (float& advantage : batch.advantages) advantage = 0;
  Policy policy = tiny_policy();
  const std::vector<float> before(policy.weights().begin(), policy.weights().end());
  UpdateSettings settings = policy_settings({1e-2});
  settings.weight_decay = 0;
  check_equal(metrics_of(apply_update(policy, batch.view(), settings, pool)).at("grad_norm"), 0.0, "gradient norm");
  check_same_bits({policy.weights().begin(), policy.weights().end()}, before, "weights");
}

void bad_batches_are_refused_with_the_place() {
  Policy policy = tiny_policy();
  ThreadPool pool(1);
  const OwnedBatch good = group_batch(vocab, 1, 2, 20, 2, 12);
  const auto refused = [&](const std::function<void(OwnedBatch&)>& spoil, const std::string& part) {
    OwnedBatch batch = good;
    spoil(batch);
    const std::vector<float> before = state_of(policy);
    check_throws<BatchError>([&] { apply_update(policy, batch.view(), policy_settings({1e-3}), pool); }, part, part);
    check_same_bits(state_of(policy), before, "state after " + part);
  };
  refused([](OwnedBatch& b) { b.nodes[4] = 7; }, "nodes[1] has parent 7");
  refused([](OwnedBatch& b) { b.nodes[5] = 0; }, "nodes[1] has length 0");
  refused([](OwnedBatch& b) { b.nodes[5] = 1000; }, "nodes[1] ends at position 1020");
  refused([](OwnedBatch& b) { b.nodes[6] = 1; }, "nodes[1] has mini-batch 1 of 1");
  refused([](OwnedBatch& b) { b.nodes[3] = 8; }, "nodes[0] has shard 8");
  refused([](OwnedBatch& b) { b.nodes[3] = 1; }, "nodes[1] is out of order");
  refused([](OwnedBatch& b) { b.tokens.push_back(1); }, "tokens has");
  refused([](OwnedBatch& b) { b.tokens[3] = 71; }, "tokens[3] is 71");
  refused([](OwnedBatch& b) { b.target_rows[2] = -1; }, "target_rows[2] is -1");
  refused([](OwnedBatch& b) { b.target_tokens[2] = 99; }, "target_tokens[2] is 99");
  refused([](OwnedBatch& b) { b.target_rows[0] = int(b.tokens.size()) - 1; }, "target_shards[0]");
  refused([](OwnedBatch& b) { b.advantages[1] = std::numeric_limits<float>::quiet_NaN(); }, "target_advantages[1]");
  refused([](OwnedBatch& b) { b.advantages.pop_back(); }, "target_advantages has");
  refused([](OwnedBatch& b) { b = {}; }, "mini-batch 0 has no targets");
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
  refused([](UpdateSettings& s) { s.beta2 = 1; }, "adam_betas");
  refused([](UpdateSettings& s) { s.temperature = 0; }, "temperature");
  refused([](UpdateSettings& s) { s.max_grad_norm = 0; }, "max_grad_norm");
}

}  // namespace

int main() {
  return run({{"loss cases", loss_cases},
              {"cross-entropy is the mean over all shards", cross_entropy_is_the_mean_over_all_shards},
              {"repeated updates learn a sequence", repeated_updates_learn_a_sequence},
              {"AdamW matches double precision", adamw_matches_double_precision},
              {"a gradient below the norm is not scaled", gradient_below_the_norm_is_not_scaled},
              {"mini-batches are updates in turn", mini_batches_are_updates_in_turn},
              {"reset_moments forgets history", reset_moments_forgets_history},
              {"a non-finite update leaves everything as it was", non_finite_update_leaves_everything_as_it_was},
              {"a cancelled update leaves everything as it was", cancelled_update_leaves_everything_as_it_was},
              {"progress counts shards, and the work advances within them", progress_counts_shards_and_the_work_advances_within_them},
              {"scoring advances layer by layer", scoring_advances_layer_by_layer},
              {"an update that throws in its second mini-batch never happened", update_that_throws_in_its_second_mini_batch_never_happened},
              {"zero advantages leave weights without decay", zero_advantages_leave_weights_without_decay},
              {"bad batches are refused with the place", bad_batches_are_refused_with_the_place},
              {"bad settings are refused", bad_settings_are_refused}});
}
