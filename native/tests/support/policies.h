// Small policies of every kind, token sequences and batches for the tests.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu_training.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "support/cpu.h"
#include "support/logprob.h"
#include "support/loss_values.h"
#include "backend/inference/cpu_extension.h"
#include "model/policy.h"
#include "pass/plan/forest.h"
#include "train/mini_batch.h"
#include "train/update.h"

namespace longhaul::test {

/// Qwen3, tied, heads of 32.
inline Architecture tiny_architecture() {
  Architecture tiny;
  tiny.vocab_size = 71;
  tiny.hidden_size = 48;
  tiny.intermediate_size = 80;
  tiny.num_hidden_layers = 2;
  tiny.num_attention_heads = 4;
  tiny.num_key_value_heads = 2;
  tiny.head_dim = 32;
  tiny.rope_theta = 1e4;
  tiny.max_position_embeddings = 256;
  return tiny;
}

/// Both model types, tied and untied, heads of 16 to 128, with and without YaRN and grouped queries. All have the tiny model's vocabulary.
inline std::vector<std::pair<std::string, Architecture>> tiny_architectures() {
  const auto variant = [](ModelType type, bool tied, int head_dim, int heads, int kv_heads) {
    Architecture tiny = tiny_architecture();
    tiny.model_type = type;
    tiny.tie_word_embeddings = tied;
    tiny.head_dim = head_dim;
    tiny.num_attention_heads = heads;
    tiny.num_key_value_heads = kv_heads;
    return tiny;
  };
  std::vector<std::pair<std::string, Architecture>> all{
      {"qwen3, tied, heads of 32", tiny_architecture()},
      {"qwen3, untied, heads of 16", variant(ModelType::qwen3, false, 16, 3, 1)},
      {"qwen3, tied, heads of 48, YaRN", variant(ModelType::qwen3, true, 48, 2, 1)},
      {"qwen2, tied, heads of 64", variant(ModelType::qwen2, true, 64, 2, 2)},
      {"qwen2, untied, heads of 16", variant(ModelType::qwen2, false, 16, 6, 2)},
      {"qwen2, tied, heads of 128, YaRN", variant(ModelType::qwen2, true, 128, 2, 1)},
  };
  for (auto& [name, architecture] : all)
    if (name.ends_with("YaRN")) architecture.yarn = YarnScaling{2, 64, 32, 1, 1.0693147};
  return all;
}

/// Uniform in [0, 1), a pure function of place and stream.
inline float uniform_at(uint32_t place, uint32_t stream) { return philox_uniform(philox4x32_10({place, stream, 0, 0}, {1, 2})[0]); }

/// Changes norm weights from 1 and biases from 0, since those values would hide a norm or bias that is left out.
inline void vary_vectors(Weights& weights) {
  uint32_t i = 0;
  for (NamedTensor<float>& tensor : weights.tensors())
    if (tensor.shape.size() == 1)
      for (float& value : tensor.values) value = uniform_at(i++, 0) + (tensor.name.ends_with(".bias") ? -0.5f : 0.5f);
}

inline std::shared_ptr<Weights> tiny_weights(uint64_t seed = 7, const Architecture& architecture = tiny_architecture()) {
  auto weights = std::make_shared<Weights>(architecture);
  weights->initialize(0.3, seed);
  vary_vectors(*weights);
  weights->changed();
  return weights;
}

/// Full fine-tuning of the same weights that the verb `load` draws.
inline Policy random_policy(const Architecture& architecture, double initializer_range, uint64_t seed) {
  auto weights = std::make_shared<Weights>(architecture);
  weights->initialize(initializer_range, seed);
  return Policy(std::move(weights));
}

/// Full fine-tuning of the tiny model.
inline Policy tiny_policy(uint64_t seed = 7, const Architecture& architecture = tiny_architecture(),
                          MomentFormat moments = MomentFormat::fp32) {
  return Policy(tiny_weights(seed, architecture), moments);
}

/// Adapters on all linear layers.
inline LoraSettings lora_settings(int rank = 5, double alpha = 8) {
  return {rank, alpha, {LoraTarget::q_proj, LoraTarget::k_proj, LoraTarget::v_proj, LoraTarget::o_proj, LoraTarget::gate_proj,
                        LoraTarget::up_proj, LoraTarget::down_proj}};
}

/// Adapters with a non-zero B, because a zero B has no effect.
inline Policy tiny_lora_policy(uint64_t seed = 7, const Architecture& architecture = tiny_architecture(),
                               const LoraSettings& settings = lora_settings(), MomentFormat moments = MomentFormat::fp32) {
  Policy policy(tiny_weights(seed, architecture), settings, seed + 1, moments);
  const std::span<float> trained = policy.trained();
  for (const TensorPlace& place : policy.trained_places())
    if (place.name.ends_with(".lora_B.weight"))
      for (size_t i = 0; i < place.size; ++i)
        trained[place.offset + i] = uniform_at(uint32_t(place.offset + i), 77) - 0.5f;
  policy.changed();
  return policy;
}

/// Every tiny architecture, with full fine-tuning and with adapters.
inline std::vector<std::pair<std::string, Policy>> tiny_policies() {
  std::vector<std::pair<std::string, Policy>> policies;
  uint64_t seed = 7;
  for (const auto& [name, architecture] : tiny_architectures()) {
    policies.emplace_back(name, tiny_policy(seed, architecture));
    policies.emplace_back(name + ", LoRA", tiny_lora_policy(seed, architecture));
    ++seed;
  }
  return policies;
}

inline std::vector<int32_t> random_tokens(int count, int vocab, uint32_t stream) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(int32_t(philox4x32_10({uint32_t(i), stream, 0, 0}, {3, 4})[0] % uint32_t(vocab)));
  return tokens;
}

/// Owns the arrays that a Batch views.
struct OwnedBatch {
  std::vector<int32_t> nodes, tokens, target_rows, target_tokens, target_samples;
  std::vector<float> advantages, old_logprobs, rollout_logprobs;

  /// Returns the node's index.
  int add_node(int parent, std::span<const int32_t> node_tokens, int mini_batch) {
    nodes.insert(nodes.end(), {parent, int32_t(node_tokens.size()), mini_batch});
    tokens.insert(tokens.end(), node_tokens.begin(), node_tokens.end());
    return int(nodes.size()) / 3 - 1;
  }
  void add_target(int row, int token, float advantage, float old_logprob, int sample) {
    target_rows.push_back(row);
    target_tokens.push_back(token);
    target_samples.push_back(sample);
    advantages.push_back(advantage);
    old_logprobs.push_back(old_logprob);
  }
  Batch view() const {
    return {nodes, tokens, target_rows, target_tokens, target_samples, advantages, old_logprobs, rollout_logprobs};
  }
};

/// Each mini-batch has `groups` prefixes of `prefix` tokens, each with `samples` samples of `own` tokens. Every second token of a sample is
/// a target; the first target is on the prefix's last row.
inline OwnedBatch group_batch(int vocab, int mini_batches, int groups, int prefix, int samples, int own) {
  OwnedBatch batch;
  uint32_t stream = 1;
  int sample = 0;
  for (int k = 0; k < mini_batches; ++k)
    for (int group = 0; group < groups; ++group) {
      const int root = batch.add_node(-1, random_tokens(prefix, vocab, uint32_t(1000 + group)), k);
      const int last_of_prefix = int(batch.tokens.size()) - 1;
      for (int s = 0; s < samples; ++s, ++stream, ++sample) {
        const std::vector<int32_t> mine = random_tokens(own, vocab, stream);
        const int first = int(batch.tokens.size());
        batch.add_node(root, mine, k);
        for (int i = 0; i < own; i += 2)
          batch.add_target(i == 0 ? last_of_prefix : first + i - 1, mine[size_t(i)], s % 2 ? -0.7f : 1.1f, -3.5f, sample);
      }
    }
  return batch;
}

/// Runs an update and, if it was applied, replaces `policy` by the result.
inline UpdateReport apply_update(Policy& policy, const Batch& batch, const UpdateSettings& settings, ThreadPool& pool) {
  UpdateReport report = compute_update(policy, batch, settings, cpu(pool));
  if (report.applied) policy = *report.next;
  return report;
}

/// The log-probs of a batch's targets under a policy.
inline std::vector<float> logprobs_under(const Policy& policy, const Batch& batch, int mini_batches, ThreadPool& pool) {
  std::vector<float> all;
  for (int k = 0; k < mini_batches; ++k) {
    const MiniBatch mini = mini_batch_of(batch, k);
    std::vector<float> logprobs(mini.target_rows.size());
    CpuTraining pass(CpuDevice(pool, arithmetic()));
    pass.begin(policy, mini.forest, mini.target_rows, mini.target_tokens, 1);
    pass.logprobs(logprobs);
    all.insert(all.end(), logprobs.begin(), logprobs.end());
  }
  return all;
}

/// Blocks from `first_block` on, as many as `positions` need.
inline std::vector<int32_t> own_blocks(int positions, int first_block = 0) {
  std::vector<int32_t> blocks;
  for (int p = 0; p < positions; p += block_positions) blocks.push_back(first_block++);
  return blocks;
}

/// Writes keys and values of all feeds, and the logits of the feeds that want them: [wanted, vocab], in order of feeds.
inline void extend(const Policy& policy, KvCache& cache, std::span<const Feed> feeds, float* logits, ThreadPool& pool,
                   Split split = Split::as_fits) {
  CpuExtension extension(pool, arithmetic(), split);
  extension.forward(policy, cache, feeds);
  const int wanted = int(std::count_if(feeds.begin(), feeds.end(), [](const Feed& feed) { return feed.want_logits; }));
  if (wanted > 0) std::copy_n(extension.logits({0, wanted}), size_t(wanted) * size_t(policy.architecture().vocab_size), logits);
}

/// Log-probs of tokens[1..] by decoding, `chunk` tokens per call. A call returns only the last row's logits, so chunks of one give all
/// log-probs, and longer chunks give only the log-prob at each chunk's end.
inline std::vector<float> decode_logprobs(const Policy& policy, std::span<const int32_t> tokens, int chunk, ThreadPool& pool,
                                          float temperature = 1, Split split = Split::as_fits) {
  const int vocab = policy.architecture().vocab_size;
  const std::vector<int32_t> blocks = own_blocks(int(tokens.size()));
  KvCache cache(policy.architecture(), int(blocks.size()));
  std::vector<float> logits(static_cast<size_t>(vocab)), logprobs;
  for (size_t i = 0; i + 1 < tokens.size(); i += size_t(chunk)) {
    const size_t count = std::min(size_t(chunk), tokens.size() - 1 - i);
    const Feed feed{tokens.subspan(i, count), int(i), blocks, true};
    extend(policy, cache, {&feed, 1}, logits.data(), pool, split);
    logprobs.push_back(logprob_of(logits.data(), vocab, temperature, tokens[i + count]));
  }
  return logprobs;
}

}  // namespace longhaul::test
