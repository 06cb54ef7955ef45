// Log-probs of sampling, prefill, scoring and training are equal bit for bit, whatever the batch, the chunks, the cache
// blocks, the threads, the instruction set and the sharing of prefixes.
#include <algorithm>

#include "check.h"
#include "policies.h"
#include "train/forest_pass.h"
#include "train/score.h"
#include "train/update.h"

using namespace longhaul;
using namespace longhaul::test;

namespace {

constexpr int vocab = 71;

std::vector<ops::InstructionSet> instruction_sets() {
  std::vector<ops::InstructionSet> sets;
  for (const auto set : {ops::InstructionSet::scalar, ops::InstructionSet::avx2, ops::InstructionSet::avx512})
    if (ops::supported(set)) sets.push_back(set);
  return sets;
}

struct UseBestAfterwards {
  ~UseBestAfterwards() { ops::set_instruction_set(ops::best_instruction_set()); }
};

void prefill_in_chunks_equals_score() {
  const Policy policy = tiny_policy();
  ThreadPool pool(1);
  const std::vector<int32_t> tokens = random_tokens(101, vocab, 1);
  const std::vector<float> scored = score(policy, tokens, 1);
  for (const int chunk : {1, 2, 5, 20, 50}) {
    const std::vector<float> decoded = decode_logprobs(policy, tokens, chunk, pool);
    for (size_t i = 0; i < decoded.size(); ++i)
      check_same_bits(&decoded[i], &scored[std::min<size_t>((i + 1) * chunk, 100) - 1], 1,
                      "chunks of " + std::to_string(chunk) + ", end " + std::to_string(i));
  }
}

void temperature_is_the_same_on_both_sides() {
  const Policy policy = tiny_policy();
  ThreadPool pool(1);
  const std::vector<int32_t> tokens = random_tokens(20, vocab, 2);
  check_same_bits(decode_logprobs(policy, tokens, 1, pool, 0.7f), score(policy, tokens, 0.7), "temperature 0.7");
}

struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;
};

// Several sequences decoded together, token by token; returns the log-probs of each sequence's tokens [1..].
std::vector<std::vector<float>> decode_together(const Policy& policy, const std::vector<Sequence>& sequences, KvCache& cache,
                                                int threads) {
  ThreadPool pool(threads);
  std::vector<std::vector<float>> logprobs(sequences.size());
  size_t longest = 0;
  for (const Sequence& sequence : sequences) longest = std::max(longest, sequence.tokens.size());
  for (size_t i = 0; i + 1 < longest; ++i) {
    std::vector<Feed> feeds;
    std::vector<size_t> who;
    for (size_t s = 0; s < sequences.size(); ++s) {
      if (i + 1 >= sequences[s].tokens.size()) continue;
      feeds.push_back({std::span(sequences[s].tokens).subspan(i, 1), int(i), sequences[s].blocks, true});
      who.push_back(s);
    }
    std::vector<float> logits(feeds.size() * vocab);
    extend(policy, cache, feeds, logits.data(), pool);
    for (size_t f = 0; f < feeds.size(); ++f)
      logprobs[who[f]].push_back(logprob_of(&logits[f * vocab], vocab, 1, sequences[who[f]].tokens[i + 1]));
  }
  return logprobs;
}

void decode_does_not_depend_on_batch_blocks_or_threads() {
  const Policy policy = tiny_policy();
  std::vector<Sequence> sequences;
  int next_block = 0;
  for (int s = 0; s < 29; ++s) {
    Sequence sequence{random_tokens(3 + s * 3, vocab, 50 + s), {}};
    for (size_t p = 0; p < sequence.tokens.size(); p += KvCache::block_positions) sequence.blocks.push_back(next_block++);
    sequences.push_back(std::move(sequence));
  }
  // Blocks in an order that has nothing to do with positions.
  for (Sequence& sequence : sequences)
    for (int32_t& block : sequence.blocks) block = next_block - 1 - block;
  KvCache cache(policy.architecture(), next_block);
  for (const int threads : {1, 2, 3}) {
    const auto together = decode_together(policy, sequences, cache, threads);
    for (size_t s = 0; s < sequences.size(); ++s)
      check_same_bits(together[s], score(policy, sequences[s].tokens, 1),
                      "sequence " + std::to_string(s) + ", " + std::to_string(threads) + " threads");
  }
}

void samples_that_share_prefix_blocks_equal_those_alone() {
  const Policy policy = tiny_policy();
  const int prefix = 70, own = 21, samples = 13;
  const std::vector<int32_t> shared = random_tokens(prefix, vocab, 9);
  KvCache cache(policy.architecture(), 3 + samples * 2);
  ThreadPool pool(2);
  const std::vector<int32_t> prefix_blocks{0, 1, 2};
  // The prefix ends inside block 2: every sample gets a copy of it.
  std::vector<float> first(vocab);
  const Feed prefix_feed{shared, 0, prefix_blocks, true};
  extend(policy, cache, {&prefix_feed, 1}, first.data(), pool);
  std::vector<std::vector<int32_t>> tails, tables;
  for (int s = 0; s < samples; ++s) {
    tails.push_back(random_tokens(own, vocab, 200 + s));
    tables.push_back({0, 1, 3 + 2 * s, 4 + 2 * s});
    cache.copy_block(2, 3 + 2 * s);
  }
  std::vector<std::vector<float>> logprobs(samples);
  for (int s = 0; s < samples; ++s) logprobs[s].push_back(logprob_of(first.data(), vocab, 1, tails[s][0]));
  for (int i = 0; i + 1 < own; ++i) {
    std::vector<Feed> feeds;
    for (int s = 0; s < samples; ++s) feeds.push_back({std::span(tails[s]).subspan(i, 1), prefix + i, tables[s], true});
    std::vector<float> logits(size_t(samples) * vocab);
    extend(policy, cache, feeds, logits.data(), pool);
    for (int s = 0; s < samples; ++s) logprobs[s].push_back(logprob_of(&logits[size_t(s) * vocab], vocab, 1, tails[s][i + 1]));
  }
  for (int s = 0; s < samples; ++s) {
    std::vector<int32_t> whole = shared;
    whole.insert(whole.end(), tails[s].begin(), tails[s].end());
    const std::vector<float> alone = score(policy, whole, 1);
    check_same_bits(logprobs[s], {alone.begin() + prefix - 1, alone.end()}, "sample " + std::to_string(s));
  }
}

void prefix_and_its_readers_may_share_a_call() {
  const Policy policy = tiny_policy();
  ThreadPool pool(2);
  const std::vector<int32_t> tokens = random_tokens(90, vocab, 3), prefix_blocks{4, 1}, blocks{4, 1, 0};
  KvCache cache(policy.architecture(), 5);
  const std::span<const int32_t> all(tokens);
  const Feed feeds[] = {{all.subspan(64, 25), 64, blocks, true}, {all.first(64), 0, prefix_blocks, true}};
  std::vector<float> logits(2 * vocab);
  extend(policy, cache, feeds, logits.data(), pool);
  const std::vector<float> scored = score(policy, tokens, 1);
  const float last = logprob_of(logits.data(), vocab, 1, tokens[89]);
  const float inner = logprob_of(logits.data() + vocab, vocab, 1, tokens[64]);
  check_same_bits(&last, &scored[88], 1, "reader");
  check_same_bits(&inner, &scored[63], 1, "prefix");
}

void forest_rows_equal_their_paths_alone() {
  const Policy policy = tiny_policy();
  Forest forest;
  const std::vector<int32_t> app = random_tokens(45, vocab, 11), task = random_tokens(17, vocab, 12);
  const int root = forest.add(-1, app), inner = forest.add(root, task);
  std::vector<int32_t> rows, targets;
  std::vector<float> expected;
  for (int s = 0; s < 5; ++s) {
    const std::vector<int32_t> own = random_tokens(10 + 13 * s, vocab, 20 + s);
    const int node = forest.add(inner, own);
    std::vector<int32_t> whole = app;
    whole.insert(whole.end(), task.begin(), task.end());
    whole.insert(whole.end(), own.begin(), own.end());
    const std::vector<float> alone = score(policy, whole, 1);
    for (size_t i = 0; i < own.size(); ++i) {
      rows.push_back(i == 0 ? forest.nodes[inner].first_row + 16 : forest.nodes[node].first_row + int(i) - 1);
      targets.push_back(own[i]);
      expected.push_back(alone[62 + i - 1]);
    }
  }
  std::vector<float> logprobs(rows.size());
  ForestPass pass;
  pass.forward(policy, forest, rows);
  pass.logprobs(targets, 1, logprobs);
  check_same_bits(logprobs, expected, "forest");
}

void instruction_sets_agree_on_logprobs() {
  const UseBestAfterwards restore;
  const Policy policy = tiny_policy();
  const std::vector<int32_t> tokens = random_tokens(77, vocab, 5);
  const std::vector<float> expected = score(policy, tokens, 1);
  for (const auto set : instruction_sets()) {
    ops::set_instruction_set(set);
    check_same_bits(score(policy, tokens, 1), expected, std::string("score on ") + ops::name(set));
    ThreadPool pool(1);
    check_same_bits(decode_logprobs(policy, tokens, 1, pool), expected, std::string("decode on ") + ops::name(set));
  }
}

void updates_depend_on_neither_threads_nor_instruction_set() {
  const UseBestAfterwards restore;
  const OwnedBatch batch = group_batch(vocab, 2, 5, 40, 3, 19);
  UpdateSettings settings;
  settings.learning_rates = {1e-2, 5e-3};
  settings.weight_decay = 0.1;
  settings.loss.kind = LossKind::clipped_policy;
  std::vector<float> expected;
  for (const auto set : instruction_sets())
    for (const int threads : {1, 2, 3}) {
      ops::set_instruction_set(set);
      ThreadPool pool(threads);
      Policy policy = tiny_policy();
      check(apply_update(policy, batch.view(), settings, pool).applied, "applied");
      std::vector<float> state(policy.weights().begin(), policy.weights().end());
      state.insert(state.end(), policy.first_moments().begin(), policy.first_moments().end());
      state.insert(state.end(), policy.second_moments().begin(), policy.second_moments().end());
      if (expected.empty()) expected = state;
      check_same_bits(state, expected, std::string(ops::name(set)) + ", " + std::to_string(threads) + " threads");
    }
}

void training_sees_the_logprobs_of_sampling() {
  ThreadPool pool(2);
  const std::vector<int32_t> tokens = random_tokens(60, vocab, 8);
  for (const float temperature : {1.0f, 0.7f, 1.4f}) {
    Policy policy = tiny_policy();
    const std::vector<float> sampled = decode_logprobs(policy, tokens, 1, pool, temperature);
    OwnedBatch batch;
    batch.add_node(-1, tokens, 0, 3);
    for (int i = 30; i < 60; ++i) batch.add_target(i - 1, tokens[i], 1, sampled[i - 1], 0, 3);
    UpdateSettings settings;
    settings.learning_rates = {1e-3};
    settings.loss.kind = LossKind::clipped_policy;
    settings.temperature = temperature;
    for (const auto& [name, value] : apply_update(policy, batch.view(), settings, pool).metrics) {
      if (name == "max_logprob_difference") check_equal(value, 0.0, name + " at temperature " + std::to_string(temperature));
      if (name == "mean_ratio") check_equal(value, 1.0, name + " at temperature " + std::to_string(temperature));
    }
  }
}

}  // namespace

int main() {
  return run({{"prefill in chunks equals score", prefill_in_chunks_equals_score},
              {"temperature is the same on both sides", temperature_is_the_same_on_both_sides},
              {"decode does not depend on batch, blocks or threads", decode_does_not_depend_on_batch_blocks_or_threads},
              {"samples that share prefix blocks equal those alone", samples_that_share_prefix_blocks_equal_those_alone},
              {"a prefix and its readers may share a call", prefix_and_its_readers_may_share_a_call},
              {"forest rows equal their paths alone", forest_rows_equal_their_paths_alone},
              {"instruction sets agree on log-probs", instruction_sets_agree_on_logprobs},
              {"updates depend on neither threads nor instruction set", updates_depend_on_neither_threads_nor_instruction_set},
              {"training sees the log-probs of sampling", training_sees_the_logprobs_of_sampling}});
}
