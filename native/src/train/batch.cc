#include "train/batch.h"

#include <cmath>
#include <limits>
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

void check_token(const char* tensor, size_t index, int32_t token, const Architecture& architecture) {
  if (token < 0 || token >= architecture.vocab_size)
    refuse(tensor, index, "is " + std::to_string(token) + ", not in the vocabulary of " + std::to_string(architecture.vocab_size));
}

void check_finite(const char* tensor, std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i])) refuse(tensor, i, "is not finite");
}

/// Checks the nodes; returns the mini-batch of each row.
std::vector<int32_t> check_nodes(const Batch& batch, const Architecture& architecture, int mini_batches) {
  std::vector<int32_t> mini_batch_of_row;
  std::vector<int64_t> ends(batch.node_count());
  for (int n = 0; n < batch.node_count(); ++n) {
    const auto [parent, length, mini_batch] = batch.node(n);
    if (length < 1) refuse("nodes", n, "has length " + std::to_string(length));
    if (mini_batch < 0 || mini_batch >= mini_batches)
      refuse("nodes", n, "has mini-batch " + std::to_string(mini_batch) + " of " + std::to_string(mini_batches));
    if (n > 0 && mini_batch < batch.node(n - 1).mini_batch) refuse("nodes", n, "is out of order: nodes must be sorted by mini-batch");
    if (parent < -1 || parent >= n)
      refuse("nodes", n, "has parent " + std::to_string(parent) + ", which does not precede it");
    ends[n] = length;
    if (parent >= 0) {
      if (batch.node(parent).mini_batch != mini_batch) refuse("nodes", n, "has a parent in another mini-batch");
      ends[n] += ends[parent];
    }
    if (ends[n] > architecture.max_position_embeddings)
      refuse("nodes", n, "ends at position " + std::to_string(ends[n]) + ", past max_position_embeddings, " +
                             std::to_string(architecture.max_position_embeddings));
    if (mini_batch_of_row.size() + size_t(length) > batch.tokens.size()) refuse("nodes", n, "reaches past the tokens");
    mini_batch_of_row.insert(mini_batch_of_row.end(), size_t(length), mini_batch);
  }
  return mini_batch_of_row;
}

/// Checks that sample numbers count up and that each sample lies in one mini-batch: reductions are means over its samples.
void check_samples(const Batch& batch, const std::vector<int32_t>& mini_batch_of_row) {
  for (size_t i = 0; i < batch.target_samples.size(); ++i) {
    const int32_t sample = batch.target_samples[i], before = i == 0 ? -1 : batch.target_samples[i - 1];
    if (sample != before + 1 && (i == 0 || sample != before))
      refuse("target_samples", i, "is " + std::to_string(sample) + "; it must be " +
                                      (i == 0 ? std::string("0") : std::to_string(before) + " or " + std::to_string(before + 1)));
    if (i > 0 && sample == before &&
        mini_batch_of_row[batch.target_rows[i]] != mini_batch_of_row[batch.target_rows[i - 1]])
      refuse("target_samples", i, "is " + std::to_string(sample) + ", which belongs to the previous mini-batch");
  }
}

}  // namespace

void validate(const Batch& batch, const Architecture& architecture, int mini_batches) {
  if (batch.nodes.size() % Batch::node_columns != 0) throw BatchError("batch: nodes is not [N,3]");
  if (batch.tokens.size() > size_t(std::numeric_limits<int32_t>::max()))
    throw BatchError("batch: tokens has " + std::to_string(batch.tokens.size()) + " values, more than row numbers can count");
  const std::vector<int32_t> mini_batch_of_row = check_nodes(batch, architecture, mini_batches);
  check_size("tokens", batch.tokens.size(), mini_batch_of_row.size());
  const size_t targets = batch.target_rows.size();
  check_size("target_tokens", batch.target_tokens.size(), targets);
  check_size("target_samples", batch.target_samples.size(), targets);
  check_size("target_advantages", batch.target_advantages.size(), targets);
  if (!batch.target_old_logprobs.empty() || batch.target_rollout_logprobs.empty())
    check_size("target_old_logprobs", batch.target_old_logprobs.size(), targets);
  if (!batch.target_rollout_logprobs.empty())
    check_size("target_rollout_logprobs", batch.target_rollout_logprobs.size(), targets);
  for (size_t i = 0; i < batch.tokens.size(); ++i) check_token("tokens", i, batch.tokens[i], architecture);
  std::vector<size_t> counts(mini_batches);
  int32_t before = 0;
  for (size_t i = 0; i < targets; ++i) {
    const int32_t row = batch.target_rows[i];
    if (row < 0 || size_t(row) >= mini_batch_of_row.size())
      refuse("target_rows", i, "is " + std::to_string(row) + " of " + std::to_string(mini_batch_of_row.size()) + " rows");
    const int32_t mini_batch = mini_batch_of_row[row];
    if (mini_batch < before)
      refuse("target_rows", i, "is out of order: targets must be sorted by the mini-batch of their row");
    before = mini_batch;
    ++counts[mini_batch];
    check_token("target_tokens", i, batch.target_tokens[i], architecture);
  }
  check_samples(batch, mini_batch_of_row);
  check_finite("target_advantages", batch.target_advantages);
  check_finite("target_old_logprobs", batch.target_old_logprobs);
  check_finite("target_rollout_logprobs", batch.target_rollout_logprobs);
  for (int k = 0; k < mini_batches; ++k)
    if (counts[k] == 0) throw BatchError("batch: mini-batch " + std::to_string(k) + " has no targets");
}

}  // namespace longhaul
