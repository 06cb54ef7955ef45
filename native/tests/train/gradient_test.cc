// Compares the hand-written backward pass with finite differences: every tensor of every kind of policy, log-probs, entropies and losses.
#include <algorithm>

#include "support/batches.h"
#include "train/loss.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

/// Long enough that chains span several panels of 32 keys and several slices of queries.
Objective objective_for(const Policy& policy) { return shared_objective(policy.architecture().vocab_size, 53, 9, 60); }

/// Moves each tensor of `policy` along `gradient` and against it, and compares the change of `value` with the gradient.
void check_along_gradient(Policy& policy, const std::vector<float>& gradient, const std::function<double()>& value,
                          double tolerance, const std::string& what) {
  const std::span<float> trained = policy.trained();
  double whole = 0;
  for (const float g : gradient) whole += double(g) * g;
  for (const TensorPlace& place : policy.trained_places()) {
    // In the gradient's own direction the change is largest, compared with fp32 noise.
    double squares = 0;
    for (size_t i = place.offset; i < place.offset + place.size; ++i) squares += double(gradient[i]) * gradient[i];
    check(squares > 0, what + ": " + place.name + " has no gradient");
    const double norm = std::sqrt(squares), step = std::min(4e-3, 0.03 / norm);
    const std::vector<float> before(trained.begin() + place.offset, trained.begin() + place.offset + place.size);
    double values[2], moved = 0;
    for (const int side : {0, 1}) {
      for (size_t i = 0; i < place.size; ++i) {
        trained[place.offset + i] = float(before[i] + (side ? step : -step) * gradient[place.offset + i] / norm);
        moved += (side ? 1 : -1) * (double(trained[place.offset + i]) - before[i]) * gradient[place.offset + i];
      }
      policy.changed();
      values[side] = value();
    }
    std::copy(before.begin(), before.end(), trained.begin() + place.offset);
    // A tensor's change can only be seen if it exceeds the fp32 noise, which grows with the norm of the whole gradient.
    const double actual = values[1] - values[0], noise = 2e-4 * step * std::sqrt(whole);
    check(std::abs(actual - moved) <= tolerance * std::abs(moved) + noise,
          what + ": " + place.name + ": difference " + std::to_string(actual) + ", gradient says " + std::to_string(moved));
  }
  policy.changed();
}

void every_tensor_of_every_policy_matches_finite_differences() {
  ThreadPool pool(2);
  for (auto& [name, policy] : tiny_policies()) {
    const Objective objective = objective_for(policy);
    const Gradient gradient = gradient_of(objective, policy, pool);
    check_along_gradient(policy, gradient.values, [&] { return value_of(objective, policy, pool); }, 0.01, name);
  }
}

void entropies_match_finite_differences() {
  ThreadPool pool(2);
  Policy full = tiny_policy(5), lora = tiny_lora_policy(6);
  for (Policy* policy : {&full, &lora}) {
    const Objective objective = objective_for(*policy).with_entropy();
    const Gradient gradient = gradient_of(objective, *policy, pool);
    check_along_gradient(*policy, gradient.values, [&] { return value_of(objective, *policy, pool); }, 0.01,
                         policy == &full ? "entropy" : "entropy, LoRA");
  }
}

void adapters_on_some_layers_match_finite_differences() {
  ThreadPool pool(2);
  const std::vector<std::vector<LoraTarget>> choices{{LoraTarget::down_proj},
                                                     {LoraTarget::q_proj, LoraTarget::v_proj},
                                                     {LoraTarget::o_proj, LoraTarget::up_proj},
                                                     {LoraTarget::k_proj, LoraTarget::gate_proj}};
  for (const std::vector<LoraTarget>& targets : choices) {
    Policy policy = tiny_lora_policy(8, tiny_architecture(), {3, 4, targets});
    const Objective objective = objective_for(policy);
    const Gradient gradient = gradient_of(objective, policy, pool);
    check_along_gradient(policy, gradient.values, [&] { return value_of(objective, policy, pool); }, 0.01,
                         std::string("adapters from ") + name(targets.front()));
  }
}

/// The losses whose gradient is the derivative of their value. (cispo is not one of them, since its weights are constants.)
void losses_match_finite_differences() {
  ThreadPool pool(2);
  std::vector<std::pair<std::string, LossSettings>> cases;
  const auto add = [&](const std::string& name, LossKind kind, LossReduction reduction) -> LossSettings& {
    LossSettings settings = loss_of(kind, reduction);
    settings.max_seq_len = 64;
    cases.emplace_back(name, settings);
    return cases.back().second;
  };
  add("regular", LossKind::regular, LossReduction::token_mean);
  add("dual_clip", LossKind::dual_clip, LossReduction::seq_mean_token_sum_norm);
  add("sapo", LossKind::sapo, LossReduction::sequence_mean);
  add("reinforce", LossKind::reinforce, LossReduction::token_mean);
  add("cross_entropy", LossKind::cross_entropy, LossReduction::token_mean);
  LossSettings& gspo = add("gspo with k3 and entropy", LossKind::gspo, LossReduction::sequence_mean);
  gspo.kl_weight = 0.3;
  gspo.entropy_weight = 0.1;
  LossSettings& k2 = add("regular with k2", LossKind::regular, LossReduction::token_mean);
  k2.kl_weight = 0.5;
  k2.kl_estimator = KlEstimator::k2;

  Policy policy = tiny_policy(9);
  const Objective objective = objective_for(policy);
  const std::vector<float> start = logprobs_of(objective, policy, pool);
  std::vector<float> old, reference, advantages;
  std::vector<int32_t> samples;
  for (size_t i = 0; i < objective.targets(); ++i) {
    // No ratio is so near a corner of the clip (0.8 and 1.28) that a step crosses the corner.
    const double ratios[] = {0.5, 0.95, 1.0, 1.08, 1.5, 1.7};
    old.push_back(float(start[i] - std::log(ratios[i % 6])));
    reference.push_back(start[i] + (i % 2 ? 0.3f : -0.2f));
    advantages.push_back(i / 20 % 2 ? -0.7f : 1.1f);
    samples.push_back(int32_t(i / 20));
  }
  for (const auto& [name, settings] : cases) {
    LossReport report;
    const Derive derive = [&, &settings = settings](std::span<const float> logprobs, std::span<const float> entropies,
                                                                 std::span<double> derivatives, std::span<double> entropy_derivatives) {
      LossInputs inputs;
      inputs.logprobs = logprobs;
      inputs.old_logprobs = old;
      inputs.advantages = advantages;
      inputs.samples = samples;
      if (settings.wants_reference()) inputs.reference_logprobs = reference;
      inputs.entropies = entropies;
      report = compute_loss(settings, inputs, derivatives, entropy_derivatives);
    };
    const auto differentiate = [&] {
      std::vector<float> values(policy.trained().size(), 0.0f);
      CpuTraining pass(CpuDevice(pool, arithmetic()));
      pass.begin(policy, objective.forest, objective.rows, objective.tokens, objective.temperature);
      pass.gradient(derive, settings.entropy_weight != 0, values.data());
      return values;
    };
    const std::vector<float> gradient = differentiate();
    const auto value = [&] {
      differentiate();
      return report.loss;
    };
    check_along_gradient(policy, gradient, value, 0.015, name);
  }
}

void single_weights_of_one_layer_match_finite_differences() {
  ThreadPool pool(1);
  Architecture architecture = tiny_architecture();
  architecture.num_hidden_layers = 1;
  Policy policy = tiny_policy(6, architecture);
  const Objective objective = objective_for(policy);
  const std::vector<float> gradient = gradient_of(objective, policy, pool).values;
  double scale = 0;
  for (const float g : gradient) scale = std::max(scale, std::abs(double(g)));
  for (uint32_t i = 0; i < 60; ++i) {
    const size_t w = philox4x32_10({i, 0, 0, 0}, {8, 8})[0] % gradient.size();
    const float before = policy.trained()[w];
    double values[2];
    for (const int side : {0, 1}) {
      policy.trained()[w] = before + (side ? 2e-3f : -2e-3f);
      policy.changed();
      values[side] = value_of(objective, policy, pool);
    }
    policy.trained()[w] = before;
    check_near((values[1] - values[0]) / 4e-3 / scale, gradient[w] / scale, 5e-3, "weight " + std::to_string(w));
  }
}

void gradients_are_added_to_what_is_there() {
  ThreadPool pool(2);
  const Policy policy = tiny_policy();
  const Objective objective = objective_for(policy);
  const std::vector<float> once = gradient_of(objective, policy, pool).values;
  std::vector<float> shifted(once.size(), 1000.0f);
  CpuTraining pass(CpuDevice(pool, arithmetic()));
  pass.begin(policy, objective.forest, objective.rows, objective.tokens, objective.temperature);
  pass.gradient([&](auto, auto, std::span<double> derivatives, auto) { std::copy(objective.weights.begin(), objective.weights.end(), derivatives.begin()); },
                false, shifted.data());
  for (size_t i = 0; i < once.size(); ++i) check_near(shifted[i] - 1000.0f, once[i], 2e-3, "gradient " + std::to_string(i));
}

void rows_after_the_last_target_get_no_gradient() {
  ThreadPool pool(1);
  // A tied head gives every embedding row a gradient; in an untied model, only the rows of earlier tokens get one.
  Architecture untied = tiny_architecture();
  untied.tie_word_embeddings = false;
  const Policy policy = tiny_policy(7, untied);
  Objective objective;
  std::vector<int32_t> tokens = random_tokens(20, 70, 3);
  tokens[15] = 70;  // this token occurs nowhere else, and comes after the only target
  objective.forest.add(-1, tokens);
  objective.add_target(9, tokens[10], 1);
  const std::vector<float> gradient = gradient_of(objective, policy, pool).values;
  for (int i = 0; i < untied.hidden_size; ++i) {
    check_equal(gradient[size_t(70 * untied.hidden_size + i)], 0.0f, "gradient of a later token's embedding");
    check(gradient[size_t(tokens[3] * untied.hidden_size + i)] != 0.0f, "an earlier token's embedding has a gradient");
  }
}

}  // namespace

int main() {
  return run({{"every tensor of every policy matches finite differences", every_tensor_of_every_policy_matches_finite_differences},
              {"entropies match finite differences", entropies_match_finite_differences},
              {"adapters on some layers match finite differences", adapters_on_some_layers_match_finite_differences},
              {"losses match finite differences", losses_match_finite_differences},
              {"single weights of one layer match finite differences", single_weights_of_one_layer_match_finite_differences},
              {"gradients are added to what is there", gradients_are_added_to_what_is_there},
              {"rows after the last target get no gradient", rows_after_the_last_target_get_no_gradient}});
}
