// A forest: rows of tokens that attend to their ancestors. A shared prefix is an inner node and is computed once.
// Log-probs have the same bits as if each root-to-leaf path were computed alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/batch.h"

namespace longhaul {

struct ForestNode {
  int parent = -1;
  int first_row = 0;
  int rows = 0;
  /// Position of its first row, which is the number of rows of all its ancestors.
  int position = 0;
};

struct Forest {
  std::vector<ForestNode> nodes;
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;

  int rows() const { return int(tokens.size()); }

  /// Returns the index of the new node. A parent must be added before its children.
  int add(int parent, std::span<const int32_t> tokens);
};

/// One mini-batch: its forest and views of its targets. `target_rows` are rows of the forest; `target_samples` begin at
/// 0.
struct MiniBatch {
  Forest forest;
  std::vector<int32_t> target_rows;
  std::vector<int32_t> target_samples;
  std::span<const int32_t> target_tokens;
  std::span<const float> advantages;
  std::span<const float> old_logprobs, rollout_logprobs;  // either may be empty
};

/// The batch must be valid.
MiniBatch mini_batch_of(const Batch& batch, int index);

}  // namespace longhaul
