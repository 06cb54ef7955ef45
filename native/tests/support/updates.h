// Starting points and comparisons for the tests of updates: settings, all kinds of trained policies, the state that an update changes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/check.h"
#include "support/policies.h"

namespace longhaul::test {

inline UpdateSettings policy_settings(std::vector<double> rates) {
  UpdateSettings settings;
  settings.learning_rates = std::move(rates);
  settings.optimizer.beta1 = 0.9;
  settings.optimizer.beta2 = 0.98;
  settings.optimizer.weight_decay = 0.1;
  settings.loss = loss_of(LossKind::regular);
  return settings;
}

inline UpdateSettings cross_entropy_settings(double rate) {
  UpdateSettings settings;
  settings.learning_rates = {rate};
  return settings;
}

inline std::map<std::string, double> metrics_of(const UpdateReport& report) {
  check(report.applied, "applied: " + report.reason);
  return {report.metrics.begin(), report.metrics.end()};
}

/// Everything that an update may change, as floats.
inline std::vector<float> state_of(const Policy& policy) {
  const Moments& moments = policy.moments();
  std::vector<float> state(policy.trained().begin(), policy.trained().end());
  for (const AlignedBuffer* buffer : {&moments.first, &moments.second, &moments.first_scales, &moments.second_scales})
    state.insert(state.end(), buffer->span().begin(), buffer->span().end());
  state.insert(state.end(), moments.first_codes.begin(), moments.first_codes.end());
  state.insert(state.end(), moments.second_codes.begin(), moments.second_codes.end());
  state.push_back(float(policy.optimizer_steps));
  return state;
}

/// Full fine-tuning and LoRA, with fp32 and 8-bit moments.
inline std::vector<std::pair<std::string, Policy>> policies_to_train() {
  std::vector<std::pair<std::string, Policy>> policies;
  policies.emplace_back("full", tiny_policy());
  policies.emplace_back("full, int8", tiny_policy(7, tiny_architecture(), MomentFormat::int8));
  policies.emplace_back("LoRA", tiny_lora_policy());
  policies.emplace_back("LoRA, int8", tiny_lora_policy(7, tiny_architecture(), lora_settings(), MomentFormat::int8));
  return policies;
}

}  // namespace longhaul::test
