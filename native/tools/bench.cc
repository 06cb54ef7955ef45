// What the CPU engine does on this machine: GEMM, one GRPO step's generation and its update, at the quickstart's sizes.
// longhaul-bench [threads]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/philox.h"
#include "model/decode.h"
#include "model/sample.h"
#include "train/update.h"

using namespace longhaul;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Architecture quickstart() {
  Architecture architecture;
  architecture.vocab_size = 1024;
  architecture.hidden_size = 128;
  architecture.intermediate_size = 384;
  architecture.num_hidden_layers = 2;
  architecture.num_attention_heads = 4;
  architecture.num_key_value_heads = 2;
  architecture.head_dim = 32;
  architecture.rope_theta = 1e4;
  architecture.max_position_embeddings = 1024;
  return architecture;
}

std::vector<int32_t> random_tokens(int count, uint32_t stream) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(int32_t(philox4x32_10({uint32_t(i), stream, 0, 0}, {1, 1})[0] % 1024));
  return tokens;
}

void bench_gemm() {
  const int shapes[][3] = {{2, 256, 128}, {12, 256, 128}, {48, 768, 128}, {256, 768, 128}, {2048, 768, 128}, {2048, 128, 384}, {1024, 512, 512}};
  for (const auto& [m, n, k] : shapes) {
    AlignedBuffer a(size_t(m) * k), w(size_t(n) * k), c(size_t(m) * n);
    for (size_t i = 0; i < a.size(); ++i) a.data()[i] = float(i % 17) * 0.1f;
    for (size_t i = 0; i < w.size(); ++i) w.data()[i] = float(i % 13) * 0.1f;
    ops::Panels panels;
    ops::pack_transposed(w.data(), n, k, panels);
    const double flops = 2.0 * m * n * k;
    const int repeats = std::max(1, int(1e8 / flops));
    double best = 1e9;
    for (int r = 0; r < 5; ++r) {
      const double start = seconds();
      for (int i = 0; i < repeats; ++i) ops::table().matmul(a.data(), size_t(k), panels, c.data(), size_t(n), m, false);
      best = std::min(best, (seconds() - start) / repeats);
    }
    std::printf("gemm %5d x %4d x %4d   %7.1f GFLOP/s, one thread\n", m, n, k, flops / best / 1e9);
  }
}

constexpr int groups = 32, samples = 8, app_tokens = 108, task_tokens = 21, own_tokens = 60, sampled_tokens = 20;

/// 256 episodes: prefix of one of two apps, task of a group, then turns of 10 sampled and 20 given tokens.
void bench_generation(const Policy& policy, ThreadPool& pool) {
  const int prefix = app_tokens + task_tokens, total = prefix + own_tokens, vocab = 1024;
  const int private_blocks = (total + 31) / 32 - app_tokens / 32;
  KvCache cache(policy.architecture(), 2 * ((app_tokens + 31) / 32) + groups * samples * private_blocks + groups * 2);
  int next_block = 0;
  std::vector<std::vector<int32_t>> app_blocks(2), tables(groups * samples), tokens(groups * samples);
  const double start = seconds();
  std::vector<Feed> feeds;
  const std::vector<int32_t> apps[2] = {random_tokens(app_tokens, 1), random_tokens(app_tokens, 2)};
  for (int app = 0; app < 2; ++app) {
    for (int p = 0; p < app_tokens; p += 32) app_blocks[app].push_back(next_block++);
    feeds.push_back({apps[app], 0, app_blocks[app], false});
  }
  std::vector<float> logits(size_t(groups) * samples * vocab);
  extend(policy, cache, feeds, logits.data(), pool);
  size_t rows = 2 * app_tokens, calls = 1;
  for (int e = 0; e < groups * samples; ++e) {
    const int app = e / samples % 2;
    tokens[e] = random_tokens(task_tokens, 100 + e / samples);
    tables[e].assign(app_blocks[app].begin(), app_blocks[app].begin() + app_tokens / 32);
    while (int(tables[e].size()) * 32 < total) tables[e].push_back(next_block++);
    cache.copy_block(app_blocks[app].back(), tables[e][app_tokens / 32]);
  }
  // The task's tokens, once for each group; its samples copy the blocks.
  feeds.clear();
  for (int e = 0; e < groups * samples; e += samples) feeds.push_back({tokens[e], app_tokens, tables[e], true});
  extend(policy, cache, feeds, logits.data(), pool);
  rows += groups * task_tokens;
  ++calls;
  for (int e = groups * samples - 1; e >= 0; --e) {
    std::copy_n(logits.begin() + size_t(e / samples) * vocab, vocab, logits.begin() + size_t(e) * vocab);
    if (e % samples != 0)
      for (int b = app_tokens / 32; b * 32 < prefix; ++b) cache.copy_block(tables[e - e % samples][b], tables[e][b]);
  }
  const double prefilled = seconds();
  double draw_time = 0;
  std::vector<int32_t> drawn(groups * samples);
  for (int turn = 0, position = prefix; turn < 2; ++turn) {
    for (int i = 0; i < sampled_tokens / 2; ++i) {
      const double before = seconds();
      pool.parallel_for(8, [&](size_t part) {
        for (int e = int(part) * 32; e < int(part) * 32 + 32; ++e)
          drawn[e] = draw(&logits[size_t(e) * vocab], vocab, 1, sampling_uniform({1, PhiloxDomain::train, 1, uint32_t(e / samples), uint32_t(e % samples)}, uint32_t(position))).token;
      });
      draw_time += seconds() - before;
      feeds.clear();
      for (int e = 0; e < groups * samples; ++e) feeds.push_back({{&drawn[e], 1}, position, tables[e], true});
      extend(policy, cache, feeds, logits.data(), pool);
      rows += feeds.size();
      ++calls;
      ++position;
    }
    const std::vector<int32_t> result = random_tokens((own_tokens - sampled_tokens) / 2, 7);
    feeds.clear();
    for (int e = 0; e < groups * samples; ++e) feeds.push_back({result, position, tables[e], true});
    extend(policy, cache, feeds, logits.data(), pool);
    rows += feeds.size() * result.size();
    position += int(result.size());
    ++calls;
  }
  const double end = seconds();
  std::printf("generation of 32 x 8 episodes  %6.1f ms (prefill %.1f, drawing %.1f), %zu rows, %.0f rows/s, %zu calls\n", (end - start) * 1e3,
              (prefilled - start) * 1e3, draw_time * 1e3, rows, double(rows) / (end - start), calls);
}

void bench_update(Policy& policy, ThreadPool& pool) {
  std::vector<int32_t> nodes, tokens, target_rows, target_tokens, target_shards;
  std::vector<float> advantages, old_logprobs;
  const auto add = [&](int parent, const std::vector<int32_t>& node, int shard) {
    nodes.insert(nodes.end(), {parent, int32_t(node.size()), 0, shard});
    tokens.insert(tokens.end(), node.begin(), node.end());
    return int(nodes.size()) / 4 - 1;
  };
  for (int shard = 0; shard < logical_shards; ++shard) {
    const int apps[2] = {add(-1, random_tokens(app_tokens, 1), shard), add(-1, random_tokens(app_tokens, 2), shard)};
    for (int g = shard * groups / logical_shards; g < (shard + 1) * groups / logical_shards; ++g) {
      const int task = add(apps[g % 2], random_tokens(task_tokens, 100 + g), shard);
      for (int s = 0; s < samples; ++s) {
        const int first = int(tokens.size());
        add(task, random_tokens(own_tokens, 1000 + g * samples + s), shard);
        for (int i = 0; i < own_tokens; ++i) {
          if (i % 30 >= 10) continue;
          target_rows.push_back(i == 0 ? first : first + i - 1);
          target_tokens.push_back(tokens[first + i]);
          advantages.push_back(s % 2 ? 1.0f : -1.0f);
          old_logprobs.push_back(-6.9f);
          target_shards.insert(target_shards.end(), {0, shard});
        }
      }
    }
  }
  UpdateSettings settings;
  settings.learning_rates = {1e-6};
  settings.loss.kind = LossKind::clipped_policy;
  const Batch batch{nodes, tokens, target_rows, target_tokens, advantages, old_logprobs, target_shards};
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = seconds();
    policy = std::move(*compute_update(policy, batch, settings, pool).next);
    best = std::min(best, seconds() - start);
  }
  const double matrices = 2.0 * (256 * 128 + 128 * 128 + 768 * 128 + 384 * 128);
  const double flops = 6 * (matrices * double(tokens.size()) + 1024.0 * 128 * double(target_rows.size()));
  std::printf("update                         %6.1f ms, %zu rows, %zu targets, %.0f rows/s, %.0f GFLOP/s without attention\n", best * 1e3,
              tokens.size(), target_rows.size(), double(tokens.size()) / best, flops / best / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  ThreadPool pool(argc > 1 ? std::atoi(argv[1]) : 2);
  std::printf("%s, %d threads\n", ops::name(ops::instruction_set()), pool.threads());
  bench_gemm();
  Policy policy(quickstart());
  const double start = seconds();
  policy.initialize(0.04, 1);
  std::printf("initialize %.1f ms\n", (seconds() - start) * 1e3);
  for (int i = 0; i < 3; ++i) bench_generation(policy, pool);
  bench_update(policy, pool);
}
