// The optimizer step of an update: AdamW compared with double precision, decay, clipping, the parameters that are trained, and the values
// that a reset clears.
#include "model/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/cpu.h"
#include "support/updates.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr int vocab = 71;

OwnedBatch sequence_batch(const std::vector<int32_t>& tokens) {
  OwnedBatch batch;
  batch.add_node(-1, tokens, 0);
  for (size_t i = 1; i < tokens.size(); ++i) batch.add_target(int(i) - 1, tokens[i], 1, 0, 0);
  return batch;
}

void repeated_updates_learn_a_sequence() {
  ThreadPool pool(2);
  const OwnedBatch batch = sequence_batch(random_tokens(40, vocab, 3));
  for (auto& [name, policy] : policies_to_train()) {
    Trainer trainer(cpu(pool));
    double loss = 0;
    for (int i = 0; i < 60; ++i) {
      UpdateReport report = trainer.update(policy, batch.view(), cross_entropy_settings(1e-2));
      loss = metrics_of(report).at("loss");
      policy = *report.next;
      trainer.recycle(std::move(report.next));
    }
    check(loss < 0.05, name + ": loss after 60 updates is " + std::to_string(loss));
  }
}

void adapters_train_and_their_base_stays() {
  ThreadPool pool(2);
  Policy policy = tiny_lora_policy();
  const auto base = policy.shared_weights();
  const std::vector<float> before(base->values().begin(), base->values().end()), adapters = state_of(policy);
  apply_update(policy, group_batch(vocab, 2, 2, 20, 2, 12).view(), policy_settings({1e-2, 1e-2}), pool);
  check(policy.shared_weights() == base, "the base is shared");
  check_same_bits({base->values().begin(), base->values().end()}, before, "base");
  check(state_of(policy) != adapters, "adapters moved");
}

// AdamW in double precision. The gradient is computed back from the change of the first moment.
void adamw_matches_double_precision() {
  ThreadPool pool(1);
  const OwnedBatch batch = group_batch(vocab, 1, 3, 20, 2, 12);
  UpdateSettings settings = policy_settings({1e-2});
  settings.optimizer.max_grad_norm = 0.05;
  Policy policy = tiny_policy();
  const std::span<const float> values = policy.trained();
  std::vector<double> weights(values.begin(), values.end()), first(weights.size()), second(weights.size());
  std::vector<bool> decayed(weights.size());
  for (const TensorPlace& place : policy.trained_places())
    if (place.shape.size() == 2 && place.name != "model.embed_tokens.weight")
      std::fill_n(decayed.begin() + std::ptrdiff_t(place.offset), place.size, true);
  for (int t = 1; t <= 3; ++t) {
    const std::vector<float> before(policy.moments().first.span().begin(), policy.moments().first.span().end());
    apply_update(policy, batch.view(), settings, pool);
    const std::span<const float> moved = policy.trained(), moment = policy.moments().first.span();
    double squares = 0, greatest_move = 0, greatest_error = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double gradient = (double(moment[i]) - double(0.9f) * before[i]) / double(0.1f);
      squares += gradient * gradient;
      first[i] = 0.9 * first[i] + 0.1 * gradient;
      second[i] = 0.98 * second[i] + 0.02 * gradient * gradient;
      const double was = weights[i];
      weights[i] *= 1 - 1e-2 * (decayed[i] ? 0.1 : 0.0);
      weights[i] -= 1e-2 * (first[i] / (1 - std::pow(0.9, t))) / (std::sqrt(second[i] / (1 - std::pow(0.98, t))) + 1e-8);
      // A gradient that is only rounding noise has a random direction.
      if (std::abs(gradient) < 1e-6) {
        weights[i] = moved[i];
        continue;
      }
      greatest_move = std::max(greatest_move, std::abs(weights[i] - was));
      greatest_error = std::max(greatest_error, std::abs(weights[i] - double(moved[i])));
    }
    check_near(std::sqrt(squares), 0.05, 1e-4, "norm of the clipped gradient at step " + std::to_string(t));
    check(greatest_move > 5e-3, "weights moved");
    check(greatest_error < 2e-3 * greatest_move, "error " + std::to_string(greatest_error) + " of moves up to " + std::to_string(greatest_move));
  }
  check_equal(policy.optimizer_steps, int64_t(3), "optimizer steps");
}

/// Without gradients there is only decay: it shrinks matrices, while embeddings, norms and biases stay the same.
void weight_decay_applies_only_to_matrices() {
  ThreadPool pool(2);
  OwnedBatch batch = group_batch(vocab, 1, 2, 20, 2, 12);
  for (float& advantage : batch.advantages) advantage = 0;
  for (const MomentFormat format : {MomentFormat::fp32, MomentFormat::int8})
    for (const auto& [name, architecture] : tiny_architectures()) {
      Policy policy = tiny_policy(7, architecture, format);
      const std::vector<float> before(policy.trained().begin(), policy.trained().end());
      check_equal(metrics_of(apply_update(policy, batch.view(), policy_settings({1e-2}), pool)).at("grad_norm"), 0.0, "gradient norm");
      for (const TensorPlace& place : policy.trained_places()) {
        const bool decays = place.shape.size() == 2 && place.name != "model.embed_tokens.weight";
        for (size_t i = place.offset; i < place.offset + place.size; ++i)
          check_near(double(policy.trained()[i]) / before[i], decays ? 1 - 1e-2 * 0.1 : 1, decays ? 1e-6 : 0, name + ", " + place.name);
      }
    }
}

void gradient_below_the_norm_is_not_scaled() {
  ThreadPool pool(1);
  const OwnedBatch batch = group_batch(vocab, 1, 2, 20, 2, 12);
  UpdateSettings loose = policy_settings({1e-3}), looser = loose;
  loose.optimizer.max_grad_norm = 1e6;
  looser.optimizer.max_grad_norm = 1e9;
  Policy a = tiny_policy(), b = tiny_policy();
  apply_update(a, batch.view(), loose, pool);
  apply_update(b, batch.view(), looser, pool);
  check_same_bits(state_of(a), state_of(b), "state");
}

void reset_moments_forgets_history() {
  ThreadPool pool(1);
  const OwnedBatch batch = group_batch(vocab, 1, 2, 20, 2, 12);
  for (const auto& [name, policy] : policies_to_train()) {
    Policy used = policy;
    apply_update(used, batch.view(), policy_settings({1e-2}), pool);
    Policy fresh = used;
    fresh.moments() = Moments(fresh.moments().format, fresh.moments().size);
    fresh.optimizer_steps = 0;
    UpdateSettings reset = policy_settings({1e-3});
    apply_update(fresh, batch.view(), reset, pool);
    reset.reset_moments = true;
    apply_update(used, batch.view(), reset, pool);
    check_same_bits(state_of(used), state_of(fresh), name + ": state");
    check_equal(used.optimizer_steps, int64_t(1), name + ": optimizer steps");
  }
}

}  // namespace

int main() {
  return run({{"repeated updates learn a sequence", repeated_updates_learn_a_sequence},
              {"adapters train and their base stays", adapters_train_and_their_base_stays},
              {"AdamW matches double precision", adamw_matches_double_precision},
              {"weight decay applies only to matrices", weight_decay_applies_only_to_matrices},
              {"a gradient below the norm is not scaled", gradient_below_the_norm_is_not_scaled},
              {"reset_moments forgets history", reset_moments_forgets_history}});
}
