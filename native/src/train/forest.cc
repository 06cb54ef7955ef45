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

std::vector<Shard> shards_of(const Batch& batch, int mini_batch) {
  std::vector<Shard> shards;
  std::vector<int> place(batch.node_count(), -1);
  for (int index = 0; index < logical_shards; ++index) {
    Shard shard;
    shard.index = index;
    int first_row = -1, row = 0;
    for (int n = 0; n < batch.node_count(); ++n) {
      const int32_t* node = &batch.nodes[size_t(n) * 4];
      if (node[2] == mini_batch && node[3] == index) {
        if (first_row < 0) first_row = row;
        place[n] = shard.forest.add(node[0] < 0 ? -1 : place[node[0]], batch.tokens.subspan(row, node[1]));
      }
      row += node[1];
    }
    size_t first = 0, last = 0;
    for (size_t t = 0; t < batch.target_rows.size(); ++t) {
      if (batch.target_shards[2 * t] != mini_batch || batch.target_shards[2 * t + 1] != index) continue;
      if (shard.target_rows.empty()) first = t;
      last = t + 1;
      shard.target_rows.push_back(batch.target_rows[t] - first_row);
    }
    if (shard.target_rows.empty()) continue;
    shard.target_tokens = batch.target_tokens.subspan(first, last - first);
    shard.advantages = batch.target_advantages.subspan(first, last - first);
    shard.old_logprobs = batch.target_old_logprobs.subspan(first, last - first);
    shards.push_back(std::move(shard));
  }
  return shards;
}

}  // namespace longhaul
