// Small policies, token sequences and batches for the tests.
#pragma once

#include <span>
#include <vector>

#include "base/philox.h"
#include "base/thread_pool.h"
#include "model/decode.h"
#include "model/policy.h"
#include "model/sample.h"
#include "train/batch.h"
#include "train/forest.h"
#include "train/update.h"

namespace longhaul::test {

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

inline Policy tiny_policy(uint64_t seed = 7, Architecture architecture = tiny_architecture()) {
  Policy policy(architecture);
  policy.initialize(0.3, seed);
  // Norm weights of 1 would hide a norm that is left out.
  uint32_t i = 0;
  for (NamedTensor<float>& tensor : policy.tensors())
    if (tensor.shape.size() == 1 && tensor.name.starts_with("model."))
      for (float& value : tensor.values) value = 0.5f + philox_uniform(philox4x32_10({i++, 0, 0, 0}, {1, 2})[0]);
  policy.weights_changed();
  return policy;
}

inline std::vector<int32_t> random_tokens(int count, int vocab, uint32_t stream) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(int32_t(philox4x32_10({uint32_t(i), stream, 0, 0}, {3, 4})[0] % uint32_t(vocab)));
  return tokens;
}

/// A batch and what its spans view.
struct OwnedBatch {
  std::vector<int32_t> nodes, tokens, target_rows, target_tokens, target_shards;
  std::vector<float> advantages, old_logprobs;

  int add_node(int parent, std::span<const int32_t> node_tokens, int mini_batch, int shard) {
    nodes.insert(nodes.end(), {parent, int32_t(node_tokens.size()), mini_batch, shard});
    tokens.insert(tokens.end(), node_tokens.begin(), node_tokens.end());
    return int(nodes.size()) / 4 - 1;
  }
  void add_target(int row, int token, float advantage, float old_logprob, int mini_batch, int shard) {
    target_rows.push_back(row);
    target_tokens.push_back(token);
    advantages.push_back(advantage);
    old_logprobs.push_back(old_logprob);
    target_shards.insert(target_shards.end(), {mini_batch, shard});
  }
  Batch view() const { return {nodes, tokens, target_rows, target_tokens, advantages, old_logprobs, target_shards}; }
};

/// A shared prefix of `prefix` tokens and, in each shard, `samples` samples of `own` tokens; every second own token is a target.
inline OwnedBatch group_batch(int vocab, int mini_batches, int shards, int prefix, int samples, int own) {
  OwnedBatch batch;
  const std::vector<int32_t> shared = random_tokens(prefix, vocab, 1000);
  uint32_t stream = 1;
  for (int k = 0; k < mini_batches; ++k)
    for (int shard = 0; shard < shards; ++shard) {
      const int root = batch.add_node(-1, shared, k, shard);
      const int root_row = int(batch.tokens.size()) - prefix;
      for (int s = 0; s < samples; ++s, ++stream) {
        const std::vector<int32_t> mine = random_tokens(own, vocab, stream);
        const int first = int(batch.tokens.size());
        batch.add_node(root, mine, k, shard);
        for (int i = 0; i < own; i += 2)
          batch.add_target(i == 0 ? root_row + prefix - 1 : first + i - 1, mine[i], s % 2 ? -0.7f : 1.1f, -3.5f, k, shard);
      }
    }
  return batch;
}

/// Puts the next policy in the place of the one that it was computed from.
inline UpdateReport apply_update(Policy& policy, const Batch& batch, const UpdateSettings& settings, ThreadPool& pool) {
  UpdateReport report = compute_update(policy, batch, settings, pool);
  if (report.applied) policy = std::move(*report.next);
  return report;
}

/// Blocks 0, 1, 2, … enough for `positions`.
inline std::vector<int32_t> own_blocks(int positions, int first_block = 0) {
  std::vector<int32_t> blocks;
  for (int p = 0; p < positions; p += KvCache::block_positions) blocks.push_back(first_block++);
  return blocks;
}

/// Log-probs of tokens[1..] by decoding: `chunk` tokens a call.
inline std::vector<float> decode_logprobs(const Policy& policy, std::span<const int32_t> tokens, int chunk,
                                          ThreadPool& pool, float temperature = 1) {
  const int vocab = policy.architecture().vocab_size;
  const std::vector<int32_t> blocks = own_blocks(int(tokens.size()));
  KvCache cache(policy.architecture(), int(blocks.size()));
  std::vector<float> logits(vocab), logprobs;
  for (size_t i = 0; i + 1 < tokens.size(); i += chunk) {
    const size_t count = std::min(size_t(chunk), tokens.size() - 1 - i);
    const Feed feed{tokens.subspan(i, count), int(i), blocks, true};
    extend(policy, cache, {&feed, 1}, logits.data(), pool);
    // Only the last row's logits come back, so chunks of one give all, longer ones the chunk ends.
    logprobs.push_back(logprob_of(logits.data(), vocab, temperature, tokens[i + count]));
  }
  return logprobs;
}

}  // namespace longhaul::test
