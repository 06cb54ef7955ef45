#include "serve/selftest.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "serve/scheduler.h"
#include "state/digest.h"
#include "state/sha256.h"
#include "train/score.h"

namespace longhaul {
namespace {

Architecture tiny_architecture() {
  Architecture architecture;
  architecture.vocab_size = 96;
  architecture.hidden_size = 64;
  architecture.intermediate_size = 96;
  architecture.num_hidden_layers = 2;
  architecture.num_attention_heads = 4;
  architecture.num_key_value_heads = 2;
  architecture.head_dim = 32;
  architecture.rope_theta = 10000;
  architecture.max_position_embeddings = 128;
  return architecture;
}

bool check(bool holds, const std::string& what) {
  std::printf("%s %s\n", holds ? "ok  " : "FAIL", what.c_str());
  return holds;
}

struct Sampled {
  std::string state;
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<float> scored;
};

Sampled sample(int threads) {
  ThreadPool pool(threads);
  Policy policy(tiny_architecture());
  policy.initialize(0.2, 7);
  GenerationCounters counters;
  Scheduler scheduler(policy.architecture(), 0, counters);
  Generation generation;
  generation.tokens = {1, 2, 3, 4, 5};
  generation.prompt_length = 5;
  generation.max_length = 80;
  generation.key.seed = 11;
  scheduler.submit(std::move(generation));
  std::vector<Finished> finished;
  while (!scheduler.idle()) scheduler.step(policy, pool, true, finished);
  Sampled result;
  result.state = state_digest(policy, pool);
  result.tokens = finished.at(0).generation.tokens;
  result.logprobs = finished.at(0).generation.logprobs;
  const auto all = score(policy, result.tokens, 1.0);
  result.scored.assign(all.end() - static_cast<std::ptrdiff_t>(result.logprobs.size()), all.end());
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

int run_selftest() {
  bool good = check(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "sha256");
  ops::set_instruction_set(ops::InstructionSet::scalar);
  const Sampled reference = sample(1);
  good &= check(same_bits(reference.logprobs, reference.scored), "scalar: sampled log-probs equal scored ones");
  for (const auto set : {ops::InstructionSet::avx2, ops::InstructionSet::avx512}) {
    const std::string name = ops::name(set);
    if (!ops::supported(set)) {
      std::printf("skip %s: this machine does not have it\n", name.c_str());
      continue;
    }
    ops::set_instruction_set(set);
    for (const int threads : {1, 2}) {
      const Sampled other = sample(threads);
      good &= check(other.state == reference.state && other.tokens == reference.tokens &&
                        same_bits(other.logprobs, reference.logprobs) && same_bits(other.scored, reference.scored),
                    name + ", " + std::to_string(threads) + " threads: the same bits as scalar");
    }
  }
  return good ? 0 : 1;
}

}  // namespace longhaul
