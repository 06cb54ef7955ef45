#include "train/mini_batch.h"

namespace longhaul {

MiniBatch mini_batch_of(const Batch& batch, int index) {
  MiniBatch mini;
  int first_node = 0, first_row = 0;
  while (first_node < batch.node_count() && batch.node(first_node).mini_batch < index) first_row += batch.node(first_node++).length;
  int row = first_row;
  for (int n = first_node; n < batch.node_count() && batch.node(n).mini_batch == index; ++n) {
    const BatchNode node = batch.node(n);
    mini.forest.add(node.parent < 0 ? -1 : node.parent - first_node, batch.tokens.subspan(size_t(row), size_t(node.length)));
    row += node.length;
  }

  // Targets are sorted by mini-batch, so they are also in the order of these row ranges.
  const int last_row = row;
  size_t first = 0;
  while (first < batch.target_rows.size() && batch.target_rows[first] < first_row) ++first;
  size_t last = first;
  for (; last < batch.target_rows.size() && batch.target_rows[last] < last_row; ++last) {
    mini.target_rows.push_back(batch.target_rows[last] - first_row);
    mini.target_samples.push_back(batch.target_samples[last] - batch.target_samples[first]);
  }
  mini.target_tokens = batch.target_tokens.subspan(first, last - first);
  mini.advantages = batch.target_advantages.subspan(first, last - first);
  if (!batch.target_old_logprobs.empty()) mini.old_logprobs = batch.target_old_logprobs.subspan(first, last - first);
  if (!batch.target_rollout_logprobs.empty())
    mini.rollout_logprobs = batch.target_rollout_logprobs.subspan(first, last - first);
  return mini;
}

}  // namespace longhaul
