// Log-probs of sampling, prefill, scoring and training are equal bit for bit, for every kind of model, batch, chunking, cache blocks,
// number of threads, division of work, instruction set and prefix sharing.
#include <algorithm>
#include <numeric>

#include "support/cpu.h"
#include "support/check.h"
#include "support/policies.h"
#include "backend/cpu_training.h"
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

constexpr std::pair<Split, const char*> splits[] = {
    {Split::by_rows, "by rows"}, {Split::by_columns, "by columns"}, {Split::in_turns, "in turns"}};

std::vector<float> score(const Policy& policy, std::span<const int32_t> tokens, double temperature = 1) {
  ThreadPool pool(1);
  return longhaul::score(policy, tokens, temperature, cpu(pool));
}

void prefill_in_chunks_equals_score() {
  ThreadPool pool(2);
  const std::vector<int32_t> tokens = random_tokens(101, vocab, 1);
  for (const auto& [name, policy] : tiny_policies()) {
    const std::vector<float> scored = score(policy, tokens);
    for (const auto& [split, how] : splits)
      for (const int chunk : {1, 2, 5, 20, 50}) {
        const std::vector<float> decoded = decode_logprobs(policy, tokens, chunk, pool, 1, split);
        for (size_t i = 0; i < decoded.size(); ++i)
          check_same_bits(&decoded[i], &scored[std::min<size_t>((i + 1) * size_t(chunk), 100) - 1], 1,
                          name + ", " + how + ", chunks of " + std::to_string(chunk) + ", end " + std::to_string(i));
      }
  }
}

void scoring_does_not_depend_on_threads() {
  const std::vector<int32_t> tokens = random_tokens(201, vocab, 4);
  for (const auto& [name, policy] : tiny_policies()) {
    const std::vector<float> alone = score(policy, tokens);
    for (const int threads : {2, 3}) {
      ThreadPool pool(threads);
      check_same_bits(longhaul::score(policy, tokens, 1, cpu(pool)), alone, name + ", " + std::to_string(threads) + " threads");
    }
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

// Decodes several sequences together, token by token; returns the log-probs of each sequence's tokens [1..].
std::vector<std::vector<float>> decode_together(const Policy& policy, const std::vector<Sequence>& sequences, KvCache& cache,
                                                int threads, Split split) {
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
    extend(policy, cache, feeds, logits.data(), pool, split);
    for (size_t f = 0; f < feeds.size(); ++f)
      logprobs[who[f]].push_back(logprob_of(&logits[f * vocab], vocab, 1, sequences[who[f]].tokens[i + 1]));
  }
  return logprobs;
}

void decode_does_not_depend_on_batch_blocks_or_threads() {
  std::vector<Sequence> sequences;
  int next_block = 0;
  // Enough that each half of a thread's rows has more than two tiles.
  for (int s = 0; s < 55; ++s) {
    Sequence sequence{random_tokens(3 + s % 29 * 3, vocab, uint32_t(50 + s)), {}};
    for (size_t p = 0; p < sequence.tokens.size(); p += block_positions) sequence.blocks.push_back(next_block++);
    sequences.push_back(std::move(sequence));
  }
  // The order of blocks is unrelated to positions.
  for (Sequence& sequence : sequences)
    for (int32_t& block : sequence.blocks) block = next_block - 1 - block;
  for (const auto& [name, policy] : tiny_policies()) {
    std::vector<std::vector<float>> alone;
    for (const Sequence& sequence : sequences) alone.push_back(score(policy, sequence.tokens));
    KvCache cache(policy.architecture(), next_block);
    for (const auto& [split, how] : splits)
      for (const int threads : {2, 3}) {
        const auto together = decode_together(policy, sequences, cache, threads, split);
        for (size_t s = 0; s < sequences.size(); ++s)
          check_same_bits(together[s], alone[s],
                          name + ", " + how + ", sequence " + std::to_string(s) + ", " + std::to_string(threads) + " threads");
      }
  }
}

void check_shared_prefix(const std::string& name, const Policy& policy, Split split) {
  const int prefix = 70, own = 21, samples = 13;
  const std::vector<int32_t> shared = random_tokens(prefix, vocab, 9);
  KvCache cache(policy.architecture(), 3 + samples * 2);
  ThreadPool pool(2);
  const std::vector<int32_t> prefix_blocks{0, 1, 2};
  // The prefix ends inside block 2, so every sample gets a copy of that block.
  std::vector<float> first(vocab);
  const Feed prefix_feed{shared, 0, prefix_blocks, true};
  extend(policy, cache, {&prefix_feed, 1}, first.data(), pool, split);
  std::vector<std::vector<int32_t>> tails, tables;
  for (int s = 0; s < samples; ++s) {
    tails.push_back(random_tokens(own, vocab, uint32_t(200 + s)));
    tables.push_back({0, 1, 3 + 2 * s, 4 + 2 * s});
    cache.copy_block(2, 3 + 2 * s);
  }
  std::vector<std::vector<float>> logprobs(samples);
  for (int s = 0; s < samples; ++s) logprobs[s].push_back(logprob_of(first.data(), vocab, 1, tails[s][0]));
  for (int i = 0; i + 1 < own; ++i) {
    std::vector<Feed> feeds;
    for (int s = 0; s < samples; ++s)
      feeds.push_back({std::span(tails[s]).subspan(size_t(i), 1), prefix + i, tables[s], true});
    std::vector<float> logits(size_t(samples) * vocab);
    extend(policy, cache, feeds, logits.data(), pool, split);
    for (int s = 0; s < samples; ++s)
      logprobs[s].push_back(logprob_of(&logits[size_t(s) * vocab], vocab, 1, tails[s][i + 1]));
  }
  for (int s = 0; s < samples; ++s) {
    std::vector<int32_t> whole = shared;
    whole.insert(whole.end(), tails[s].begin(), tails[s].end());
    const std::vector<float> alone = score(policy, whole);
    check_same_bits(logprobs[s], {alone.begin() + prefix - 1, alone.end()}, name + ", sample " + std::to_string(s));
  }
}

void samples_that_share_prefix_blocks_equal_those_alone() {
  for (const auto& [name, policy] : tiny_policies())
    for (const auto& [split, how] : splits) check_shared_prefix(name + ", " + how, policy, split);
}

void a_prefix_and_its_readers_may_share_a_call() {
  ThreadPool pool(2);
  const std::vector<int32_t> tokens = random_tokens(90, vocab, 3), prefix_blocks{4, 1}, blocks{4, 1, 0};
  const std::span<const int32_t> all(tokens);
  for (const auto& [name, policy] : tiny_policies())
    for (const auto& [split, how] : splits) {
      KvCache cache(policy.architecture(), 5);
      const Feed feeds[] = {{all.subspan(64, 25), 64, blocks, true}, {all.first(64), 0, prefix_blocks, true}};
      std::vector<float> logits(2 * vocab);
      extend(policy, cache, feeds, logits.data(), pool, split);
      const std::vector<float> scored = score(policy, tokens);
      const float last = logprob_of(logits.data(), vocab, 1, tokens[89]);
      const float inner = logprob_of(logits.data() + vocab, vocab, 1, tokens[64]);
      check_same_bits(&last, &scored[88], 1, name + ", " + how + ", reader");
      check_same_bits(&inner, &scored[63], 1, name + ", " + how + ", prefix");
    }
}

// In the last layer, a call computes only the rows with wanted logits. The other rows must still have stored their keys and values.
void feeds_without_wanted_logits_can_be_continued() {
  ThreadPool pool(3);
  for (const auto& [name, policy] : tiny_policies())
    for (const auto& [split, how] : splits) {
      std::vector<std::vector<int32_t>> tokens, tables;
      for (int s = 0; s < 7; ++s) {
        tokens.push_back(random_tokens(40 + 3 * s, vocab, uint32_t(300 + s)));
        tables.push_back({13 - 2 * s, 12 - 2 * s});
      }
      KvCache cache(policy.architecture(), 14);
      // First all tokens but the last two, with logits for every second feed; then one more token each, first with logits, then without.
      std::vector<float> logits(7 * vocab);
      std::vector<Feed> feeds;
      for (int s = 0; s < 7; ++s)
        feeds.push_back({std::span(tokens[s]).first(tokens[s].size() - 2), 0, tables[s], s % 2 == 0});
      extend(policy, cache, feeds, logits.data(), pool, split);
      std::vector<std::vector<float>> scored;
      for (int s = 0; s < 7; ++s) scored.push_back(score(policy, tokens[s]));
      for (int s = 0; s < 7; s += 2) {
        const size_t place = tokens[s].size() - 2;
        const float logprob = logprob_of(&logits[size_t(s / 2) * vocab], vocab, 1, tokens[s][place]);
        check_same_bits(&logprob, &scored[s][place - 1], 1, name + ", " + how + ", first call, feed " + std::to_string(s));
      }
      feeds.clear();
      for (int s = 0; s < 7; ++s)
        feeds.push_back({std::span(tokens[s]).subspan(tokens[s].size() - 2, 1), int(tokens[s].size()) - 2, tables[s], true});
      extend(policy, cache, feeds, logits.data(), pool, split);
      for (int s = 0; s < 7; ++s) {
        const float logprob = logprob_of(&logits[size_t(s) * vocab], vocab, 1, tokens[s].back());
        check_same_bits(&logprob, &scored[s].back(), 1, name + ", " + how + ", second call, feed " + std::to_string(s));
      }
      for (Feed& feed : feeds) feed.want_logits = false;
      extend(policy, cache, feeds, nullptr, pool, split);
    }
}

/// The draws of feeds behind the first rows of logits have their own requests.
void a_call_draws_from_more_rows_than_there_are_logits_at_once() {
  Architecture architecture = tiny_architecture();
  architecture.vocab_size = 20'000;
  architecture.num_hidden_layers = 1;
  const Policy policy = tiny_policy(2, architecture);
  const int most = most_logit_rows<CpuDevice>(architecture.vocab_size), feeds = most + 70;
  const std::vector<int32_t> tokens = random_tokens(feeds, architecture.vocab_size, 9);
  ThreadPool pool(2);
  const auto draw_in_calls_of = [&](int size) {
    CpuExtension extension(pool, arithmetic());
    KvCache cache(architecture, size);
    std::vector<int32_t> blocks(static_cast<size_t>(size));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::vector<Drawn> drawn(static_cast<size_t>(feeds));
    for (int first = 0; first < feeds; first += size) {
      const int count = std::min(size, feeds - first);
      std::vector<Feed> rows;
      std::vector<DrawRequest> requests;
      for (int i = 0; i < count; ++i) {
        rows.push_back({std::span(tokens).subspan(size_t(first + i), 1), 0, std::span(blocks).subspan(size_t(i), 1), true});
        requests.push_back({1, float(first + i) / float(feeds), 1, 0});
      }
      extension.run(policy, cache, rows, requests, std::span(drawn).subspan(size_t(first), size_t(count)));
    }
    return drawn;
  };
  const std::vector<Drawn> together = draw_in_calls_of(feeds), alone = draw_in_calls_of(100);
  for (int i = 0; i < feeds; ++i) {
    check_equal(together[size_t(i)].token, alone[size_t(i)].token, "token " + std::to_string(i));
    check_equal(together[size_t(i)].logprob, alone[size_t(i)].logprob, "log-prob " + std::to_string(i));
  }
}

void forest_rows_equal_their_paths_alone() {
  const std::vector<int32_t> app = random_tokens(45, vocab, 11), task = random_tokens(17, vocab, 12);
  for (const auto& [name, policy] : tiny_policies()) {
    Forest forest;
    const int root = forest.add(-1, app), inner = forest.add(root, task);
    std::vector<int32_t> rows, targets;
    std::vector<float> expected;
    for (int s = 0; s < 5; ++s) {
      const std::vector<int32_t> own = random_tokens(10 + 13 * s, vocab, uint32_t(20 + s));
      const int node = forest.add(inner, own);
      std::vector<int32_t> whole = app;
      whole.insert(whole.end(), task.begin(), task.end());
      whole.insert(whole.end(), own.begin(), own.end());
      const std::vector<float> alone = score(policy, whole);
      for (size_t i = 0; i < own.size(); ++i) {
        rows.push_back(i == 0 ? forest.nodes[inner].first_row + 16 : forest.nodes[node].first_row + int(i) - 1);
        targets.push_back(own[i]);
        expected.push_back(alone[62 + i - 1]);
      }
    }
    ThreadPool pool(2);
    std::vector<float> logprobs(rows.size());
    CpuTraining pass(CpuDevice(pool, arithmetic()));
    pass.begin(policy, forest, rows, targets, 1);
    pass.logprobs(logprobs);
    check_same_bits(logprobs, expected, name);
  }
}

void instruction_sets_agree_on_logprobs() {
  const UseBestAfterwards restore;
  const std::vector<int32_t> tokens = random_tokens(77, vocab, 5);
  for (const auto& [name, policy] : tiny_policies()) {
    ops::set_instruction_set(ops::best_instruction_set());
    const std::vector<float> expected = score(policy, tokens);
    for (const auto set : instruction_sets()) {
      ops::set_instruction_set(set);
      check_same_bits(score(policy, tokens), expected, name + ", score on " + ops::name(set));
      ThreadPool pool(2);
      for (const auto& [split, how] : splits)
        check_same_bits(decode_logprobs(policy, tokens, 1, pool, 1, split), expected,
                        name + ", " + how + ", decode on " + ops::name(set));
    }
  }
}

void updates_depend_on_neither_threads_nor_instruction_set() {
  const UseBestAfterwards restore;
  const OwnedBatch batch = group_batch(vocab, 2, 5, 40, 3, 19);
  UpdateSettings settings;
  settings.learning_rates = {1e-2, 5e-3};
  settings.optimizer.weight_decay = 0.1;
  settings.loss = loss_of(LossKind::regular);
  for (const auto& [name, start] : tiny_policies()) {
    std::vector<float> expected;
    for (const auto set : instruction_sets())
      for (const int threads : {1, 3}) {
        // (The plain loops are slow, so one number of threads is enough.)
        if (set == ops::InstructionSet::scalar && threads > 1) continue;
        ops::set_instruction_set(set);
        ThreadPool pool(threads);
        Policy policy = start;
        check(apply_update(policy, batch.view(), settings, pool).applied, name + ": applied");
        const std::span<const float> trained = std::as_const(policy).trained();
        std::vector<float> state(trained.begin(), trained.end());
        for (const AlignedBuffer* moments : {&policy.moments().first, &policy.moments().second})
          state.insert(state.end(), moments->span().begin(), moments->span().end());
        if (expected.empty()) expected = state;
        check_same_bits(state, expected, name + ", " + ops::name(set) + ", " + std::to_string(threads) + " threads");
        check(!std::equal(trained.begin(), trained.end(), start.trained().begin()), name + ": something was learned");
      }
  }
}

void training_sees_the_logprobs_of_sampling() {
  ThreadPool pool(2);
  const std::vector<int32_t> tokens = random_tokens(60, vocab, 8);
  for (const auto& [name, start] : tiny_policies())
    for (const float temperature : {1.0f, 0.7f, 1.4f}) {
      Policy policy = start;
      const std::vector<float> sampled = decode_logprobs(policy, tokens, 1, pool, temperature);
      OwnedBatch batch;
      batch.add_node(-1, tokens, 0);
      for (int i = 30; i < 60; ++i) batch.add_target(i - 1, tokens[size_t(i)], 1, sampled[size_t(i - 1)], 0);
      UpdateSettings settings;
      settings.learning_rates = {1e-3};
      settings.loss = loss_of(LossKind::regular);
      settings.temperature = temperature;
      int seen = 0;
      for (const auto& [metric, value] : apply_update(policy, batch.view(), settings, pool).metrics) {
        const std::string what = name + ": " + metric + " at temperature " + std::to_string(temperature);
        if (metric == "max_logprob_difference") check_equal(value, 0.0, what), ++seen;
        if (metric == "mean_ratio") check_equal(value, 1.0, what), ++seen;
      }
      check_equal(seen, 2, name + ": metrics");
    }
}

}  // namespace

int main() {
  const int failed = run({{"prefill in chunks equals score", prefill_in_chunks_equals_score},
                          {"scoring does not depend on threads", scoring_does_not_depend_on_threads},
                          {"temperature is the same on both sides", temperature_is_the_same_on_both_sides},
                          {"decode does not depend on batch, blocks or threads", decode_does_not_depend_on_batch_blocks_or_threads},
                          {"samples that share prefix blocks equal those alone", samples_that_share_prefix_blocks_equal_those_alone},
                          {"a prefix and its readers may share a call", a_prefix_and_its_readers_may_share_a_call},
                          {"feeds without wanted logits can be continued", feeds_without_wanted_logits_can_be_continued},
                          {"a call draws from more rows than there are logits at once", a_call_draws_from_more_rows_than_there_are_logits_at_once},
                          {"forest rows equal their paths alone", forest_rows_equal_their_paths_alone},
                          {"instruction sets agree on log-probs", instruction_sets_agree_on_logprobs},
                          {"updates depend on neither threads nor instruction set", updates_depend_on_neither_threads_nor_instruction_set},
                          {"training sees the log-probs of sampling", training_sees_the_logprobs_of_sampling}});
  print_figures({{"compared", double(compared_bits.values)}, {"differing", double(compared_bits.differing)}});
  return failed;
}
