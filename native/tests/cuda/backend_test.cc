// The device gives the CPU's bits: tokens and log-probs of sampling, scores, and every value that an update changes, for both kinds of models,
// with and without adapters.
#include <memory>

#include "backend/cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "support/updates.h"
#include "train/score.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

/// Two backends that hold the same policy.
struct Both {
  explicit Both(const Policy& from, int threads = 1) : policy(std::make_shared<const Policy>(from)), pool(threads), cpu(pool) {
    cpu.hold(policy);
    device.hold(policy);
  }

  void refer_to(const std::shared_ptr<const Weights>& reference) {
    cpu.hold_reference(reference);
    device.hold_reference(reference);
  }

  std::shared_ptr<const Policy> policy;
  ThreadPool pool;
  CpuBackend cpu;
  cuda::CudaBackend device;
};

struct Sampled {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;

  void add(std::span<const Drawn> drawn) {
    for (const Drawn& one : drawn) {
      tokens.push_back(one.token);
      logprobs.push_back(one.logprob);
    }
  }
};

/// Two prompts that share a block, and a third one, in pieces; then one token at a time, with two kinds of draws; then a copied block.
Sampled sample(Backend& backend, const Policy& policy) {
  const int vocab = policy.architecture().vocab_size;
  const std::unique_ptr<BlockCache> cache = backend.make_cache(policy.architecture(), 16);
  const std::vector<int32_t> first_blocks{3, 4, 5}, second_blocks{3, 7, 2}, third_blocks{9, 10, 11};
  std::vector<int32_t> first = random_tokens(45, vocab, 1), second(first.begin(), first.begin() + 32), third = random_tokens(70, vocab, 2);
  for (const int32_t token : random_tokens(9, vocab, 3)) second.push_back(token);
  Sampled all;
  std::vector<Drawn> drawn(3);
  std::vector<DrawRequest> draws{{0.9f, 0.31f, 1, 0}, {1.0f, 0.72f, 1, 0}, {1.3f, 0.5f, 0.8, 7}};
  const auto rest = [](const std::vector<int32_t>& tokens, size_t from) { return std::span<const int32_t>(tokens).subspan(from); };
  const Feed pieces[] = {{rest(first, 0), 0, first_blocks, true}, {rest(second, 32), 32, second_blocks, true},
                         {rest(third, 0).first(33), 0, third_blocks, false}};
  backend.extend(policy, *cache, pieces, std::span(draws).first(2), std::span(drawn).first(2));
  all.add(std::span(drawn).first(2));
  const Feed last[] = {{rest(third, 33), 33, third_blocks, true}};
  backend.extend(policy, *cache, last, std::span(draws).last(1), std::span(drawn).last(1));
  all.add(std::span(drawn).last(1));
  for (int step = 0; step < 4; ++step) {
    first.push_back(drawn[0].token);
    second.push_back(drawn[1].token);
    third.push_back(drawn[2].token);
    for (DrawRequest& draw : draws) draw.uniform = draw.uniform * 0.83f + 0.05f;
    const Feed feeds[] = {{rest(first, first.size() - 1), int(first.size()) - 1, first_blocks, true},
                          {rest(second, second.size() - 1), int(second.size()) - 1, second_blocks, true},
                          {rest(third, third.size() - 1), int(third.size()) - 1, third_blocks, true}};
    backend.extend(policy, *cache, feeds, draws, drawn);
    all.add(drawn);
  }
  cache->copy_block(4, 13);
  const std::vector<int32_t> copied{3, 13, 14}, next{first.back()};
  const Feed feed[] = {{next, int(first.size()) - 1, copied, true}};
  backend.extend(policy, *cache, feed, std::span(draws).first(1), std::span(drawn).first(1));
  all.add(std::span(drawn).first(1));
  return all;
}

void sampling_has_the_same_bits() {
  for (const auto& [name, policy] : tiny_policies()) {
    Both both(policy);
    const Sampled expected = sample(both.cpu, *both.policy);
    for (const uint64_t schedule : {0, 5, 6}) {
      cuda::set_schedule(schedule);
      const Sampled actual = sample(both.device, *both.policy);
      check(actual.tokens == expected.tokens, name + ": tokens");
      check_same_bits(actual.logprobs, expected.logprobs, name + ", schedule " + std::to_string(schedule) + ": log-probs");
    }
    cuda::set_schedule(0);
    const std::vector<int32_t> tokens = random_tokens(150, policy.architecture().vocab_size, 9);
    check_same_bits(score(*both.policy, tokens, 0.8, both.device), score(*both.policy, tokens, 0.8, both.cpu), name + ": scores");
  }
}

void check_updates(Both& both, const OwnedBatch& batch, const UpdateSettings& settings, const std::string& what) {
  const UpdateReport expected = compute_update(*both.policy, batch.view(), settings, both.cpu);
  const UpdateReport actual = compute_update(*both.policy, batch.view(), settings, both.device);
  check(expected.applied && actual.applied, what + ": applied " + expected.reason + actual.reason);
  check_same_bits(state_of(*actual.next), state_of(*expected.next), what + ": state");
  check(actual.metrics == expected.metrics, what + ": metrics");
}

/// Two mini-batches with KL, entropy and their own old log-probs.
UpdateSettings full_settings(const Policy& policy) {
  UpdateSettings settings = policy_settings({1e-2, 5e-3});
  settings.temperature = 0.9;
  settings.loss.kl_weight = 0.05;
  settings.loss.entropy_weight = 0.02;
  settings.reference = tiny_weights(99, policy.architecture());
  return settings;
}

void updates_have_the_same_bits() {
  for (const auto& [name, policy] : tiny_policies()) {
    Both both(policy);
    UpdateSettings settings = full_settings(policy);
    both.refer_to(settings.reference);
    OwnedBatch batch = group_batch(policy.architecture().vocab_size, 2, 2, 21, 3, 12);
    check_updates(both, batch, settings, name);
    both.device.hold(both.policy);
    // Without old log-probs: the second mini-batch compares with the policy before the first step.
    batch.rollout_logprobs = std::exchange(batch.old_logprobs, {});
    check_updates(both, batch, settings, name + ", without old log-probs");
  }
}

void kinds_of_moments_have_the_same_bits() {
  for (const auto& [name, policy] : policies_to_train()) {
    auto held = std::make_shared<const Policy>(policy);
    Both both(policy);
    UpdateSettings settings = policy_settings({1e-2, 5e-3});
    const OwnedBatch batch = group_batch(policy.architecture().vocab_size, 2, 1, 9, 3, 10);
    // Three updates in sequence: each begins with the arrays that the device itself stepped.
    for (int step = 0; step < 3; ++step) {
      settings.reset_moments = step == 2;
      UpdateReport expected = compute_update(*held, batch.view(), settings, both.cpu);
      both.device.hold(held);
      UpdateReport actual = compute_update(*held, batch.view(), settings, both.device);
      check_same_bits(state_of(*actual.next), state_of(*expected.next), name + ", step " + std::to_string(step));
      held = std::move(actual.next);
      both.device.hold(held);
    }
  }
}

/// More rows than a piece, in one pass and in two, with and without recomputation, each in its own schedules.
void passes_have_the_same_bits() {
  const std::pair<std::string, Policy> policies[] = {{"full", tiny_policy()}, {"LoRA", tiny_lora_policy()}};
  uint64_t schedule = 0;
  for (const auto& [name, policy] : policies) {
    const OwnedBatch batch = group_batch(policy.architecture().vocab_size, 1, 2, 100, 3, 80);
    for (const ForestPassSettings passes : {ForestPassSettings{1 << 30, false}, ForestPassSettings{1 << 30, true},
                                            ForestPassSettings{512, false}, ForestPassSettings{512, true}}) {
      Both both(policy);
      UpdateSettings settings = policy_settings({1e-2});
      settings.passes = passes;
      cuda::set_schedule(++schedule);
      check_updates(both, batch, settings,
                    name + ", " + std::to_string(passes.pass_rows) + " rows" + (passes.recompute ? ", recomputed" : ""));
    }
  }
  cuda::set_schedule(0);
}

void an_update_that_is_given_up_leaves_the_held_policy() {
  Both both(tiny_policy());
  UpdateSettings settings = policy_settings({1e-2, 1e-2});
  const OwnedBatch batch = group_batch(71, 2, 1, 9, 3, 10);
  std::atomic<bool> cancelled = false;
  settings.cancelled = &cancelled;
  settings.progress = [&](int done, int) { cancelled = done == 4; };  // in the second mini-batch
  check_equal(compute_update(*both.policy, batch.view(), settings, both.device).reason, std::string("cancelled"), "the first update");
  cancelled = false;
  settings.progress = {};
  check_updates(both, batch, settings, "the next update");
}

void a_policy_that_is_not_held_is_refused() {
  Both both(tiny_policy());
  const Policy other = tiny_policy(8);
  check_throws<std::logic_error>([&] { score(other, random_tokens(5, 71, 1), 1, both.device); }, "does not hold", "another policy");
}

}  // namespace

int main() {
  return run({{"sampling has the same bits", sampling_has_the_same_bits},
                    {"updates have the same bits", updates_have_the_same_bits},
                    {"kinds of moments have the same bits", kinds_of_moments_have_the_same_bits},
                    {"passes have the same bits", passes_have_the_same_bits},
                    {"an update that is given up leaves the held policy", an_update_that_is_given_up_leaves_the_held_policy},
                    {"a policy that is not held is refused", a_policy_that_is_not_held_is_refused}});
}
