#include "train/batch.h"

#include <cmath>
#include <tuple>
#include <vector>

namespace longhaul {

namespace {

[[noreturn]] void refuse(const char* tensor, size_t index, const std::string& what) {
  throw BatchError(std::string("batch: ") + tensor + "[" + std::to_string(index) + "] " + what);
}

void check_size(const char* tensor, size_t size, size_t expected) {
  if (size != expected)
    throw BatchError(std::string("batch: ") + tensor + " has " + std::to_string(size) + " values; " +
                     std::to_string(expected) + " are expected");
}

/// What each row belongs to.
struct RowPlace {
  int32_t mini_batch, shard;
};

std::vector<RowPlace> check_nodes(const Batch& batch, const Architecture& architecture, int mini_batches) {
  std::vector<RowPlace> places;
  std::vector<int64_t> ends(batch.node_count());
  for (int n = 0; n < batch.node_count(); ++n) {
    const int32_t *node = &batch.nodes[size_t(n) * 4], parent = node[0], length = node[1];
    if (length < 1) refuse("nodes", n, "has length " + std::to_string(length));
    if (node[2] < 0 || node[2] >= mini_batches)
      refuse("nodes", n, "has mini-batch " + std::to_string(node[2]) + " of " + std::to_string(mini_batches));
    if (node[3] < 0 || node[3] >= logical_shards) refuse("nodes", n, "has shard " + std::to_string(node[3]));
    if (n > 0 && std::tie(node[2], node[3]) < std::tie(node[-2], node[-1]))
      refuse("nodes", n, "is out of order: nodes are sorted by mini-batch and shard");
    if (parent < -1 || parent >= n)
      refuse("nodes", n, "has parent " + std::to_string(parent) + ", which does not precede it");
    ends[n] = length;
    if (parent >= 0) {
      const int32_t* above = &batch.nodes[size_t(parent) * 4];
      if (above[2] != node[2] || above[3] != node[3]) refuse("nodes", n, "has a parent in another mini-batch or shard");
      ends[n] += ends[parent];
    }
    if (ends[n] > architecture.max_position_embeddings)
      refuse("nodes", n, "ends at position " + std::to_string(ends[n]) + ", past max_position_embeddings, " +
                             std::to_string(architecture.max_position_embeddings));
    if (places.size() + size_t(length) > batch.tokens.size()) refuse("nodes", n, "reaches past the tokens");
    places.insert(places.end(), size_t(length), {node[2], node[3]});
  }
  return places;
}

}  // namespace

void validate(const Batch& batch, const Architecture& architecture, int mini_batches) {
  if (batch.nodes.size() % 4 != 0) throw BatchError("batch: nodes is not [N,4]");
  const std::vector<RowPlace> places = check_nodes(batch, architecture, mini_batches);
  check_size("tokens", batch.tokens.size(), places.size());
  const size_t targets = batch.target_rows.size();
  check_size("target_tokens", batch.target_tokens.size(), targets);
  check_size("target_advantages", batch.target_advantages.size(), targets);
  check_size("target_old_logprobs", batch.target_old_logprobs.size(), targets);
  check_size("target_shards", batch.target_shards.size(), 2 * targets);
  for (size_t i = 0; i < batch.tokens.size(); ++i)
    if (batch.tokens[i] < 0 || batch.tokens[i] >= architecture.vocab_size)
      refuse("tokens", i, "is " + std::to_string(batch.tokens[i]) + ", not in the vocabulary of " +
                              std::to_string(architecture.vocab_size));
  std::vector<int> counts(mini_batches);
  for (size_t i = 0; i < targets; ++i) {
    const int32_t row = batch.target_rows[i], token = batch.target_tokens[i];
    const int32_t mini_batch = batch.target_shards[2 * i], shard = batch.target_shards[2 * i + 1];
    if (row < 0 || size_t(row) >= places.size())
      refuse("target_rows", i, "is " + std::to_string(row) + " of " + std::to_string(places.size()) + " rows");
    if (token < 0 || token >= architecture.vocab_size)
      refuse("target_tokens", i, "is " + std::to_string(token) + ", not in the vocabulary of " +
                                     std::to_string(architecture.vocab_size));
    if (places[row].mini_batch != mini_batch || places[row].shard != shard)
      refuse("target_shards", i, "is not the mini-batch and shard of row " + std::to_string(row));
    if (i > 0 && std::tie(mini_batch, shard) < std::tie(batch.target_shards[2 * i - 2], batch.target_shards[2 * i - 1]))
      refuse("target_shards", i, "is out of order: targets are sorted by mini-batch and shard");
    if (!std::isfinite(batch.target_advantages[i])) refuse("target_advantages", i, "is not finite");
    if (!std::isfinite(batch.target_old_logprobs[i])) refuse("target_old_logprobs", i, "is not finite");
    ++counts[mini_batch];
  }
  for (int k = 0; k < mini_batches; ++k)
    if (counts[k] == 0) throw BatchError("batch: mini-batch " + std::to_string(k) + " has no targets");
}

}  // namespace longhaul
