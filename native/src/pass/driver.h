// The order of a mini-batch's passes: forward over all, the loss, backward over all from the last to the first.
#pragma once

#include <algorithm>
#include <numeric>

#include "pass/forest_pass.h"

namespace longhaul {

template <class Device>
void ForestPass<Device>::prepare(const ForestPassSettings& settings, int most_rows) {
  give_up();
  const int rows = std::min(settings.pass_rows, most_rows);
  const bool tighter = (settings.recompute && !settings_.recompute) || (rows < most_rows && rows < held_rows_);
  if (tighter) {
    drop_activations();
    held_rows_ = 0;
  }
  settings_ = settings;
  held_rows_ = std::max(held_rows_, rows);
}

/// What grows with the rows of a pass; the rest is small, or as large as the policy.
template <class Device>
void ForestPass<Device>::drop_activations() {
  arrays_.clear();
  inputs_.clear();
  layers_.clear();
  keys_values_.clear();
  for (Activations<Device>* buffer : {&last_hidden_, &final_normed_, &logits_, &d_targets_}) *buffer = {};
  final_inverse_ = {};
  head_inputs_ = {};
  for (Activations<Device>* buffer : {&d_hidden_, &d_hidden_all_, &d_attention_, &d_qkv_}) *buffer = {};
  d_keys_values_.clear();
  device_.drop_scratch();
}

template <class Device>
void ForestPass<Device>::begin(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows,
                               std::span<const int32_t> target_tokens, float temperature, OnAdvance advanced, OnAdvance passed) {
  policy_ = &policy;
  device_.hold(policy);
  forest_ = &forest;
  inverse_temperature_ = 1.0f / temperature;
  advanced_ = std::move(advanced);
  passed_ = std::move(passed);
  plan_ = PassPlan(forest, target_rows, settings_.pass_rows);
  arrays_.resize(std::max(arrays_.size(), plan_.passes.size()));
  for (const PassRange& pass : plan_.passes) arrays(pass).put(device_, forest, plan_, pass, target_tokens);
}

template <class Device>
void ForestPass<Device>::start(bool entropy) {
  const size_t targets = plan_.target_order.size();
  device_.start();
  with_entropy_ = entropy;
  normalizers_.room(targets);
  logprobs_.assign(targets, 0.0f);
  entropies_.assign(entropy ? targets : 0, 0.0f);
}

template <class Device>
void ForestPass<Device>::logprobs(std::span<float> out, std::span<float> entropies) {
  start(!entropies.empty());
  for (const PassRange& pass : plan_.passes) {
    forward(pass, Keep::nothing, true);
    head_logprobs(pass, false);
    tell(passed_);
  }
  std::copy(logprobs_.begin(), logprobs_.end(), out.begin());
  std::copy(entropies_.begin(), entropies_.end(), entropies.begin());
}

template <class Device>
void ForestPass<Device>::gradient(const Derive& derive, bool trains_entropy) {
  gradient(derive, trains_entropy, device_.zeros(own_gradients_, policy_->trained().size()));
}

template <class Device>
void ForestPass<Device>::gradient(const Derive& derive, bool trains_entropy, float* gradients) {
  start(true);
  trains_entropy_ = trains_entropy;
  gradients_ = gradients;
  device_.pack_backward();
  const std::vector<PassRange>& passes = plan_.passes;
  const Keep keep = settings_.recompute ? Keep::inputs : Keep::everything;
  const size_t targets = plan_.target_order.size();
  for (size_t p = 0; p < passes.size(); ++p) {
    // The last pass goes backward first. Its activations still exist then, and so do its logits if it is the only pass.
    forward(passes[p], p + 1 == passes.size() ? keep : Keep::nothing, true);
    head_logprobs(passes[p], passes.size() == 1 && targets <= size_t(head_capacity(architecture(), device_.threads())));
    tell(passed_);
  }
  derivatives_.assign(targets, 0.0);
  entropy_derivatives_.assign(trains_entropy ? targets : 0, 0.0);
  derive(logprobs_, entropies_, derivatives_, entropy_derivatives_);
  for (size_t p = passes.size(); p-- > 0;) {
    if (p + 1 != passes.size()) forward(passes[p], keep, false);
    backward(passes[p]);
    tell(passed_);
  }
  device_.finish_gradients(gradients_);
  if (!frozen()) add_embedding_gradient();
}

template <class Device>
void ForestPass<Device>::add_embedding_gradient() {
  const std::vector<int32_t>& tokens = plan_.distinct_tokens;
  std::vector<int32_t> each(tokens.size() + 1);
  std::iota(each.begin(), each.end(), 0);
  device_.put(each, embedding_starts_);
  device_.put(tokens, embedding_tokens_);
  const size_t width = size_t(architecture().hidden_size);
  device_.add_rows({d_embedding_.data(), width}, {embedding_starts_.data(), nullptr, int(tokens.size())}, embedding_tokens_.data(),
                   {gradients_ + policy_->layout().embedding.offset, width}, int(width));
}

template <class Device>
void ForestPass<Device>::step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
                              const OptimizerSettings& settings) {
  const int64_t t = (reset_moments ? 0 : from.optimizer_steps) + 1;
  device_.step(next, from, reset_moments, gradients_, adam_step(t, norm, learning_rate, settings));
  next.optimizer_steps = t;
}

}  // namespace longhaul
