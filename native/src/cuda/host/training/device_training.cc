#include "cuda/host/training/device_training.h"

#include <algorithm>

namespace longhaul::cuda {

void DeviceTraining::prepare(const ForestPassSettings& settings, int most_rows) {
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
void DeviceTraining::drop_activations() {
  passes_.clear();
  inputs_.clear();
  layers_.clear();
  keys_values_.clear();
  d_keys_values_.clear();
  for (DeviceRoom<float>* room :
       {&normed_, &activated_, &last_hidden_, &final_normed_, &final_inverse_, &inverse_, &head_rows_, &logits_, &d_targets_, &d_hidden_,
        &d_scattered_, &d_output_, &d_activated_, &d_gate_up_, &d_normed_, &d_attention_, &d_qkv_, &d_down_, &pulls_})
    *room = {};
}

void DeviceTraining::begin(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows,
                           std::span<const int32_t> target_tokens, float temperature, OnAdvance advanced, OnAdvance passed) {
  policy_ = &policy;
  model_ = &policies_.model_of(policy);
  forest_ = &forest;
  target_tokens_ = target_tokens;
  inverse_temperature_ = 1.0f / temperature;
  advanced_ = std::move(advanced);
  passed_ = std::move(passed);
  plan_ = PassPlan(forest, target_rows, settings_.pass_rows);
  passes_.resize(std::max(passes_.size(), plan_.passes.size()));
  for (const PassRange& pass : plan_.passes)
    arrays(pass).put(forest, plan_, pass, target_tokens, architecture().queries_per_key_value(), stream_);
  normalizers_.room(target_tokens.size());
}

void DeviceTraining::logprobs(std::span<float> out) {
  with_entropy_ = false;
  logprobs_.assign(target_tokens_.size(), 0.0f);
  for (const PassRange& pass : plan_.passes) {
    forward(pass, Keep::nothing, true);
    head_logprobs(pass, false);
    tell(passed_);
  }
  std::copy(logprobs_.begin(), logprobs_.end(), out.begin());
}

void DeviceTraining::gradient(const Derive& derive, bool trains_entropy) {
  const size_t targets = target_tokens_.size();
  with_entropy_ = true;
  trains_entropy_ = trains_entropy;
  logprobs_.assign(targets, 0.0f);
  entropies_.assign(targets, 0.0f);
  gradients_.zeros(model_->trained().size(), stream_);
  const std::vector<PassRange>& passes = plan_.passes;
  const Keep keep = settings_.recompute ? Keep::inputs : Keep::everything;
  for (size_t p = 0; p < passes.size(); ++p) {
    // The last pass goes backward first. Its activations still exist then, and so do its logits if it is the only pass.
    forward(passes[p], p + 1 == passes.size() ? keep : Keep::nothing, true);
    head_logprobs(passes[p], passes.size() == 1 && targets <= size_t(head_rows()));
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
  check_.finish(gradients_.data());
  add_embedding_gradient();
}

double DeviceTraining::gradient_norm() { return optimizer_.norm(*policy_, gradients_.data(), stream_); }

void DeviceTraining::step(Policy& next, const Policy& from, bool reset_moments, double norm, double learning_rate,
                          const OptimizerSettings& settings) {
  const int64_t t = (reset_moments ? 0 : from.optimizer_steps) + 1;
  DeviceModel& model = policies_.model_of(from);
  // From here on the arrays are no longer those of `from`, even if the step fails half-way.
  policies_.stepped_to(next);
  if (reset_moments) policies_.moments().zero(stream_);
  optimizer_.step(from, model.trained().data(), policies_.moments(), gradients_.data(), adam_step(t, norm, learning_rate, settings), stream_);
  next.optimizer_steps = t;
}

void DeviceTraining::collect(Policy& next) {
  DeviceModel& model = policies_.model_of(next);
  const std::span<float> values = next.trained();
  device_copy(values.data(), model.trained().data(), values.size(), stream_);
  policies_.moments().copy_to(next.moments(), stream_);
  next.changed();
}

void DeviceTraining::give_up() noexcept {
  check_.forget();
  policies_.forget_steps();
}

}  // namespace longhaul::cuda
