// The rules of a batch. Breaking any one of them gives an error that names the entry.
#include "train/batch.h"

#include <limits>

#include "support/check.h"
#include "support/policies.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

/// Two mini-batches, each with two groups; a group has two samples of 6 tokens after a prefix of 5.
OwnedBatch good() {
  OwnedBatch batch = group_batch(71, 2, 2, 5, 2, 6);
  batch.rollout_logprobs = batch.old_logprobs;
  return batch;
}

void refused(const std::function<void(OwnedBatch&)>& spoil, const std::string& part) {
  OwnedBatch batch = good();
  validate(batch.view(), tiny_architecture(), 2);
  spoil(batch);
  check_throws<BatchError>([&] { validate(batch.view(), tiny_architecture(), 2); }, part, part);
}

void nodes_are_a_forest_sorted_by_mini_batch() {
  refused([](OwnedBatch& b) { b.nodes.pop_back(); }, "nodes is not [N,3]");
  refused([](OwnedBatch& b) { b.nodes[3] = 1; }, "nodes[1] has parent 1, which does not precede it");
  refused([](OwnedBatch& b) { b.nodes[3] = -2; }, "nodes[1] has parent -2");
  refused([](OwnedBatch& b) { b.nodes[4] = -6; }, "nodes[1] has length -6");
  refused([](OwnedBatch& b) { b.nodes[5] = 2; }, "nodes[1] has mini-batch 2 of 2");
  refused([](OwnedBatch& b) { b.nodes[5] = -1; }, "nodes[1] has mini-batch -1 of 2");
  refused([](OwnedBatch& b) { b.nodes[0 * 3 + 2] = 1; }, "nodes[1] is out of order");
  refused([](OwnedBatch& b) { b.nodes[6 * 3] = 0; b.nodes[7 * 3] = 0; }, "nodes[6] has a parent in another mini-batch");
  refused([](OwnedBatch& b) { b.nodes[4] = std::numeric_limits<int32_t>::max(); }, "nodes[1] ends at position 2147483652, past");
  refused([](OwnedBatch& b) { b.nodes.back() = 1; b.nodes[b.nodes.size() - 2] = 200; }, "nodes[11] reaches past the tokens");
  refused([](OwnedBatch& b) { b.tokens.push_back(1); }, "tokens has 69 values; 68 are expected");
  refused([](OwnedBatch& b) { b.tokens[7] = -1; }, "tokens[7] is -1, not in the vocabulary of 71");
}

void targets_are_sorted_by_the_mini_batch_of_their_row() {
  const size_t half = good().target_rows.size() / 2;
  refused([&](OwnedBatch& b) { b.target_rows[0] = b.target_rows[half]; }, "target_rows[1] is out of order");
  refused([](OwnedBatch& b) { b.target_rows[3] = 68; }, "target_rows[3] is 68 of 68 rows");
  refused([](OwnedBatch& b) { b.target_tokens[3] = 71; }, "target_tokens[3] is 71, not in the vocabulary of 71");
  refused([](OwnedBatch& b) { b.target_tokens.pop_back(); }, "target_tokens has 23 values; 24 are expected");
  // Sorted, but no target is left in the second mini-batch.
  refused([&](OwnedBatch& b) { std::fill(b.target_rows.begin() + std::ptrdiff_t(half), b.target_rows.end(), 3); }, "mini-batch 1 has no targets");
}

void samples_count_up_within_mini_batches() {
  refused([](OwnedBatch& b) { for (int32_t& sample : b.target_samples) ++sample; }, "target_samples[0] is 1; it must be 0");
  refused([](OwnedBatch& b) { b.target_samples[3] = 2; }, "target_samples[3] is 2; it must be 0 or 1");
  refused([](OwnedBatch& b) { b.target_samples[5] = 0; }, "target_samples[5] is 0; it must be 1 or 2");
  refused([](OwnedBatch& b) { b.target_samples.clear(); }, "target_samples has 0 values; 24 are expected");
  // Sample 4 starts with the second mini-batch.
  refused([](OwnedBatch& b) { for (int32_t& sample : b.target_samples) sample -= sample >= 4; },
          "target_samples[12] is 3, which belongs to the previous mini-batch");
}

void values_are_finite() {
  const float infinite = std::numeric_limits<float>::infinity();
  refused([&](OwnedBatch& b) { b.advantages[2] = infinite; }, "target_advantages[2] is not finite");
  refused([&](OwnedBatch& b) { b.old_logprobs[2] = -infinite; }, "target_old_logprobs[2] is not finite");
  refused([&](OwnedBatch& b) { b.rollout_logprobs[2] = std::numeric_limits<float>::quiet_NaN(); }, "target_rollout_logprobs[2] is not finite");
  refused([](OwnedBatch& b) { b.old_logprobs.pop_back(); }, "target_old_logprobs has 23 values; 24 are expected");
  refused([](OwnedBatch& b) { b.old_logprobs.clear(), b.rollout_logprobs.clear(); }, "target_old_logprobs has 0 values; 24 are expected");
  refused([](OwnedBatch& b) { b.rollout_logprobs.pop_back(); }, "target_rollout_logprobs has 23 values; 24 are expected");
}

void a_mini_batch_has_its_own_rows_and_samples() {
  const OwnedBatch batch = good();
  const MiniBatch second = mini_batch_of(batch.view(), 1);
  check_equal(second.forest.rows(), 34, "rows");
  check_equal(second.target_rows.size(), size_t(12), "targets");
  check_equal(second.target_rows[0], 4, "the first target sits on its prefix's last row");
  check_equal(second.target_samples[0], 0, "samples count from 0");
  check_equal(second.target_samples[11], 3, "to the last");
  check_equal(second.rollout_logprobs.size(), size_t(12), "log-probs at sampling");
  OwnedBatch one = good(), other = good();
  one.old_logprobs.clear();
  other.rollout_logprobs.clear();
  for (const OwnedBatch* either : {&one, &other}) validate(either->view(), tiny_architecture(), 2);
  check(mini_batch_of(one.view(), 1).old_logprobs.empty() && mini_batch_of(other.view(), 1).rollout_logprobs.empty(), "one may be left out");
}

}  // namespace

int main() {
  return run({{"nodes are a forest sorted by mini-batch", nodes_are_a_forest_sorted_by_mini_batch},
              {"targets are sorted by the mini-batch of their row", targets_are_sorted_by_the_mini_batch_of_their_row},
              {"samples count up within mini-batches", samples_count_up_within_mini_batches},
              {"values are finite", values_are_finite},
              {"a mini-batch has its own rows and samples", a_mini_batch_has_its_own_rows_and_samples}});
}
