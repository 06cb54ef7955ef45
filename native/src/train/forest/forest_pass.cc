#include "train/forest/forest_pass.h"

#include <algorithm>
#include <utility>

#include "train/forest/forest_pass_state.h"

namespace longhaul {

ForestPass::ForestPass(ThreadPool& pool, ForestPassSettings settings) : state_(std::make_unique<State>(pool, settings)) {}

ForestPass::~ForestPass() = default;

void ForestPass::configure(ForestPassSettings settings) { state_->settings = settings; }

void ForestPass::weights_changed() { state_->stale = true; }

void ForestPass::begin(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows,
                       std::span<const int32_t> target_tokens, float temperature, OnAdvance advanced, OnAdvance passed) {
  State& state = *state_;
  state.policy = &policy;
  state.forest = &forest;
  state.target_tokens = target_tokens;
  state.inverse_temperature = 1.0f / temperature;
  state.advanced = std::move(advanced);
  state.passed = std::move(passed);
  state.plan = PassPlan(forest, target_rows, state.settings.pass_rows);
}

void ForestPass::State::start(bool entropy) {
  op = &ops::table();
  policy->pack_forward(&pool);
  linears.clear();
  for (int layer = 0; layer < architecture().num_hidden_layers; ++layer) linears.push_back(longhaul::linears(*policy, layer));
  with_entropy = entropy;
  normalizers.resize(target_tokens.size());
  logprobs.assign(target_tokens.size(), 0.0f);
  entropies.assign(entropy ? target_tokens.size() : 0, 0.0f);
}

void ForestPass::State::pack_backward() {
  if (frozen()) {
    if (packed_base.lock() != policy->shared_weights()) {
      weights().pack_backward(panels.weights, &pool);
      packed_base = policy->shared_weights();
    }
    if (stale || packed_policy != policy) policy->adapters()->pack_backward(panels.adapters, &pool);
  } else if (stale || packed_policy != policy) {
    packed_base.reset();
    weights().pack_backward(panels.weights, &pool);
  }
  packed_policy = policy;
  stale = false;
  backwards.clear();
  for (int layer = 0; layer < architecture().num_hidden_layers; ++layer)
    backwards.push_back(backward_linears(*policy, panels, layer));
}

void ForestPass::logprobs(std::span<float> out, std::span<float> entropies) {
  State& state = *state_;
  state.start(!entropies.empty());
  for (const PassRange& pass : state.plan.passes) {
    state.forward(pass, Keep::nothing, true);
    state.head_logprobs(pass, false);
    state.tell(state.passed);
  }
  std::copy(state.logprobs.begin(), state.logprobs.end(), out.begin());
  std::copy(state.entropies.begin(), state.entropies.end(), entropies.begin());
}

void ForestPass::gradient(const Derive& derive, bool trains_entropy, std::span<float> gradients) {
  State& state = *state_;
  state.start(true);
  state.trains_entropy = trains_entropy;
  state.pack_backward();
  const std::vector<PassRange>& passes = state.plan.passes;
  const Keep keep = state.settings.recompute ? Keep::inputs : Keep::everything;
  const size_t targets = state.target_tokens.size();
  for (size_t p = 0; p < passes.size(); ++p) {
    // The last pass goes backward first. Its activations still exist then, and so do its logits if it is the only pass.
    const bool last = p + 1 == passes.size();
    state.forward(passes[p], last ? keep : Keep::nothing, true);
    state.head_logprobs(passes[p], passes.size() == 1 && targets <= size_t(head_capacity(state.architecture(), state.pool.threads())));
    state.tell(state.passed);
  }
  state.derivatives.assign(targets, 0.0);
  state.entropy_derivatives.assign(trains_entropy ? targets : 0, 0.0);
  derive(state.logprobs, state.entropies, state.derivatives, state.entropy_derivatives);
  for (size_t p = passes.size(); p-- > 0;) {
    if (p + 1 != passes.size()) state.forward(passes[p], keep, false);
    state.backward(passes[p], gradients.data());
    state.tell(state.passed);
  }
  state.add_embedding_gradient(gradients.data());
}

}  // namespace longhaul
