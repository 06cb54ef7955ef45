// The bits of a gradient depend only on forest, targets and weights: not on pass size, recomputation, threads, instruction set, or earlier
// uses of the pass.
#include <algorithm>
#include <numeric>

#include "support/batches.h"
#include "support/every_set.h"
#include "pass/rows.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr int whole = 1 << 30;

Architecture long_architecture(ModelType type = ModelType::qwen3, bool tied = true) {
  Architecture architecture = tiny_architecture();
  architecture.model_type = type;
  architecture.tie_word_embeddings = tied;
  architecture.max_position_embeddings = 4096;
  return architecture;
}

std::vector<std::pair<std::string, Policy>> long_policies() {
  std::vector<std::pair<std::string, Policy>> policies;
  policies.emplace_back("qwen3, tied", tiny_policy(1, long_architecture()));
  policies.emplace_back("qwen2, untied", tiny_policy(2, long_architecture(ModelType::qwen2, false)));
  policies.emplace_back("qwen3, LoRA", tiny_lora_policy(3, long_architecture()));
  policies.emplace_back("qwen2, LoRA without qkv", tiny_lora_policy(4, long_architecture(ModelType::qwen2), {4, 8, {LoraTarget::o_proj, LoraTarget::down_proj}}));
  return policies;
}

/// A little over four pieces: nodes that straddle cuts, a node longer than a piece, a node that begins on a cut, a first piece without
/// targets, a second tree with nodes among those of the first, rows that several targets read.
Objective cut_objective(int vocab) {
  Objective objective;
  const auto targets_of = [&](int node, int every, int shift) {
    const ForestNode at = objective.forest.nodes[size_t(node)];
    for (int i = shift; i < at.rows; i += every)
      objective.add_target(at.first_row + i, int(philox4x32_10({uint32_t(objective.targets()), 5, 0, 0}, {1, 1})[0] % uint32_t(vocab)),
                           i % 2 ? 0.3 : -0.25);
  };
  const int root = objective.forest.add(-1, random_tokens(300, vocab, 1));
  const int other = objective.forest.add(-1, random_tokens(212, vocab, 2));
  const int middle = objective.forest.add(root, random_tokens(700, vocab, 3));   // 512 … 1212
  const int leaf = objective.forest.add(other, random_tokens(400, vocab, 4));    // 1212 … 1612
  const int small = objective.forest.add(middle, random_tokens(37, vocab, 5));
  const int empty = objective.forest.add(middle, random_tokens(620, vocab, 6));  // 1649 … 2269
  const int last = objective.forest.add(small, random_tokens(90, vocab, 7));
  targets_of(middle, 3, 0);
  targets_of(leaf, 1, 40);
  targets_of(small, 2, 1);
  targets_of(empty, 5, 500);
  targets_of(last, 1, 0);
  targets_of(middle, 31, 0);  // some rows get a second target
  return objective;
}

void check_same(const Gradient& actual, const Gradient& expected, const std::string& what) {
  check_same_bits(actual.logprobs, expected.logprobs, what + ": log-probs");
  check_same_bits(actual.entropies, expected.entropies, what + ": entropies");
  check_same_bits(actual.values, expected.values, what + ": gradient");
}

void gradients_do_not_depend_on_passes_recomputation_or_threads() {
  struct Way {
    int pass_rows;
    bool recompute;
    int threads;
  };
  for (const auto& [name, policy] : long_policies()) {
    const Objective objective = cut_objective(policy.architecture().vocab_size).with_entropy();
    ThreadPool alone(1);
    const Gradient expected = gradient_of(objective, policy, alone);
    for (const Way way : {Way{512, false, 2}, Way{512, true, 1}, Way{1024, false, 3}, Way{1536, true, 2}, Way{whole, false, 2}, Way{whole, true, 3}}) {
      ThreadPool pool(way.threads);
      check_same(gradient_of(objective, policy, pool, {way.pass_rows, way.recompute}), expected,
                 name + ", passes of " + std::to_string(way.pass_rows) + (way.recompute ? ", recomputed, " : ", ") +
                     std::to_string(way.threads) + " threads");
    }
    for (const int pass_rows : {512, whole})
      check_same_bits(logprobs_of(objective, policy, alone, {pass_rows, false}), expected.logprobs, name + ": log-probs alone");
  }
}

void gradients_do_not_depend_on_the_instruction_set() {
  const Policy policies[] = {tiny_policy(1, long_architecture()), tiny_lora_policy(3, long_architecture(ModelType::qwen2))};
  for (const Policy& policy : policies) {
    Objective objective = shared_objective(policy.architecture().vocab_size, 480, 21, 70).with_entropy();
    ThreadPool pool(2);
    on_every_set("gradient", [&](const ops::Table&) {
      const Gradient gradient = gradient_of(objective, policy, pool, {512, true});
      std::vector<float> all = gradient.values;
      all.insert(all.end(), gradient.logprobs.begin(), gradient.logprobs.end());
      all.insert(all.end(), gradient.entropies.begin(), gradient.entropies.end());
      return all;
    });
  }
}

void sharing_changes_no_logprob_and_gradients_only_by_rounding() {
  ThreadPool pool(2);
  for (const auto& [name, policy] : long_policies()) {
    // The prefix alone is longer than a piece.
    const Objective shared = shared_objective(policy.architecture().vocab_size, 520, 29, 61), alone = unshared(shared);
    const Gradient with = gradient_of(shared, policy, pool), without = gradient_of(alone, policy, pool, {1024, false});
    check_same_bits(with.logprobs, without.logprobs, name + ": log-probs");
    const double difference = relative_difference(with.values, without.values);
    check(difference < (arithmetic() == ops::Arithmetic::bf16 ? 5e-3 : 2e-5), name + ": gradients differ by " + std::to_string(difference));
    check(difference > 0 || policy.adapters(), name + ": another order of sums shows in the bits");
  }
}

/// If no two targets read the same row, the order in which they are given does not matter.
void gradients_do_not_depend_on_the_order_of_targets() {
  ThreadPool pool(2);
  const Policy policy = tiny_policy(1, long_architecture());
  Objective objective;
  const int root = objective.forest.add(-1, random_tokens(600, 71, 1));
  objective.forest.add(root, random_tokens(90, 71, 2));
  for (int row = 0; row < 690; row += 2) objective.add_target(row, (row * 7) % 71, row % 3 - 1.2);
  Objective shuffled = objective;
  std::vector<size_t> order(objective.targets());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [](size_t a, size_t b) { return a * 97 % 345 < b * 97 % 345; });
  for (size_t i = 0; i < order.size(); ++i) {
    shuffled.rows[i] = objective.rows[order[i]];
    shuffled.tokens[i] = objective.tokens[order[i]];
    shuffled.weights[i] = objective.weights[order[i]];
  }
  check(shuffled.rows != objective.rows, "the order differs");
  const Gradient expected = gradient_of(objective, policy, pool), actual = gradient_of(shuffled, policy, pool);
  check_same_bits(actual.values, expected.values, "gradient");
  for (size_t i = 0; i < order.size(); ++i)
    check_same_bits(&actual.logprobs[i], &expected.logprobs[order[i]], 1, "log-prob " + std::to_string(i));
}

/// More targets than there may be rows of logits at once.
void gradients_do_not_depend_on_the_head_s_chunks() {
  Architecture architecture = long_architecture();
  architecture.vocab_size = 20000;
  architecture.num_hidden_layers = 1;
  const Policy policy = tiny_policy(2, architecture);
  Objective objective;
  objective.forest.add(-1, random_tokens(640, 20000, 1));
  for (int row = 0; row < 639; ++row) objective.add_target(row, objective.forest.tokens[size_t(row) + 1], row % 2 ? 0.2 : -0.1);
  ThreadPool pool(2);
  check(int(objective.targets()) > head_capacity(architecture, 2), "chunks are needed");
  const Gradient in_chunks = gradient_of(objective, policy, pool, {whole, false});
  check_same_bits(gradient_of(objective, policy, pool, {512, false}).values, in_chunks.values, "gradient");

  // The first 400 targets fit: a single pass keeps their logits from forward to backward, and several passes compute them again.
  objective.rows.resize(400);
  objective.tokens.resize(400);
  objective.weights.resize(400);
  check(int(objective.targets()) <= head_capacity(architecture, 2), "all logits fit");
  check_same_bits(gradient_of(objective, policy, pool, {whole, false}).values, gradient_of(objective, policy, pool, {512, false}).values,
                  "gradient of few targets");
}

void a_used_pass_gives_the_bits_of_a_fresh_one() {
  ThreadPool pool(2);
  const Policy large = tiny_policy(1, long_architecture()), lora = tiny_lora_policy(3, long_architecture());
  Policy small = tiny_policy(5);
  const Objective long_objective = cut_objective(71), short_objective = shared_objective(71, 53, 9, 60);
  CpuTraining used(CpuDevice(pool, arithmetic()), {1024, false});
  gradient_with(used, long_objective, large);
  // Sums over several passes begin anew.
  used.prepare({512, false}, whole);
  const Gradient alone = gradient_of(long_objective, large, pool);
  for (const char* what : {"several passes", "several passes again"}) check_same(gradient_with(used, long_objective, large), alone, what);
  used.prepare({whole, false}, whole);
  check_same(gradient_with(used, short_objective.with_entropy(), small), gradient_of(short_objective.with_entropy(), small, pool), "another policy");
  used.prepare({whole, false}, whole);
  check_same(gradient_with(used, short_objective, lora), gradient_of(short_objective, lora, pool), "adapters");
  // A pass that an exception ends does not affect the next pass.
  int calls = 0;
  std::vector<float> ignored(small.trained().size(), 0.0f);
  used.begin(small, short_objective.forest, short_objective.rows, short_objective.tokens, 1, [&] {
    if (++calls == 3) throw Failure("ended");
  });
  check_throws<Failure>([&] { used.gradient([](auto, auto, auto, auto) {}, false, ignored.data()); }, "ended", "a pass that is ended");
  for (float& value : small.trained()) value *= 1.01f;
  small.changed();
  used.prepare({512, true}, whole);
  check_same(gradient_with(used, short_objective, small), gradient_of(short_objective, small, pool), "changed weights");
}

}  // namespace

int main() {
  return run({{"gradients do not depend on passes, recomputation or threads", gradients_do_not_depend_on_passes_recomputation_or_threads},
              {"gradients do not depend on the instruction set", gradients_do_not_depend_on_the_instruction_set},
              {"sharing changes no log-prob, and gradients only by rounding", sharing_changes_no_logprob_and_gradients_only_by_rounding},
              {"gradients do not depend on the order of targets", gradients_do_not_depend_on_the_order_of_targets},
              {"gradients do not depend on the head's chunks", gradients_do_not_depend_on_the_head_s_chunks},
              {"a used pass gives the bits of a fresh one", a_used_pass_gives_the_bits_of_a_fresh_one}});
}
