#include "train/forest.h"

namespace longhaul {

int Forest::add(int parent, std::span<const int32_t> added) {
  ForestNode node{parent, rows(), int(added.size()), 0};
  if (parent >= 0) node.position = nodes[parent].position + nodes[parent].rows;
  tokens.insert(tokens.end(), added.begin(), added.end());
  for (int i = 0; i < node.rows; ++i) positions.push_back(node.position + i);
  nodes.push_back(node);
  return int(nodes.size()) - 1;
}

std::vector<int32_t> Forest::chain(int node) const {
  std::vector<int32_t> chain(size_t(nodes[node].position) + nodes[node].rows);
  for (int n = node; n >= 0; n = nodes[n].parent)
    for (int i = 0; i < nodes[n].rows; ++i) chain[nodes[n].position + i] = nodes[n].first_row + i;
  return chain;
}

MiniBatch mini_batch_of(const Batch& batch, int index) {
  MiniBatch mini;
  int first_node = 0, first_row = 0;
  while (first_node < batch.node_count() && batch.nodes[size_t(first_node) * 3 + 2] < index)
    first_row += batch.nodes[size_t(first_node++) * 3 + 1];
  int row = first_row;
  for (int n = first_node; n < batch.node_count() && batch.nodes[size_t(n) * 3 + 2] == index; ++n) {
    const int32_t parent = batch.nodes[size_t(n) * 3], length = batch.nodes[size_t(n) * 3 + 1];
    mini.forest.add(parent < 0 ? -1 : parent - first_node, batch.tokens.subspan(size_t(row), size_t(length)));
    row += length;
  }

  // Targets are sorted by mini-batch, and so by these ranges of rows.
  const int last_row = row;
  size_t first = 0;
  while (first < batch.target_rows.size() && batch.target_rows[first] < first_row) ++first;
  size_t last = first;
  for (; last < batch.target_rows.size() && batch.target_rows[last] < last_row; ++last) {
    mini.target_rows.push_back(batch.target_rows[last] - first_row);
    mini.target_samples.push_back(batch.target_samples[last] - batch.target_samples[first]);
  }
  if (!mini.target_samples.empty()) mini.samples = mini.target_samples.back() + 1;
  mini.target_tokens = batch.target_tokens.subspan(first, last - first);
  mini.advantages = batch.target_advantages.subspan(first, last - first);
  mini.old_logprobs = batch.target_old_logprobs.subspan(first, last - first);
  if (!batch.target_rollout_logprobs.empty())
    mini.rollout_logprobs = batch.target_rollout_logprobs.subspan(first, last - first);
  return mini;
}

}  // namespace longhaul
