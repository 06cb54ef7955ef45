// The input of one step's update. Rows are the tokens of a forest; targets are the tokens that carry loss.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "model/architecture.h"

namespace longhaul {

/// Consecutive tokens without a branch.
struct BatchNode {
  int32_t parent = -1;  // −1 for a root
  int32_t length = 0;
  int32_t mini_batch = 0;
};

/// Views of the tensors of a batch file (docs/engine-protocol.md, "The batch file", longhaul.batch/2).
struct Batch {
  static constexpr size_t node_columns = 3;

  /// [N, 3]: the members of BatchNode. Sorted by mini-batch; a parent precedes its children in its mini-batch.
  std::span<const int32_t> nodes;
  /// [T], in node order.
  std::span<const int32_t> tokens;
  /// [M] each. Targets are sorted by the mini-batch of their row; all targets of a sample are neighbours.
  std::span<const int32_t> target_rows;
  std::span<const int32_t> target_tokens;
  /// Number of each target's sample (sequence): starts at 0 and grows by 0 or 1 from target to target over the whole
  /// batch.
  std::span<const int32_t> target_samples;
  std::span<const float> target_advantages;
  /// The old log-probs for ratios. If empty, the update computes them with the policy that it starts from.
  std::span<const float> target_old_logprobs;
  /// Log-probs at sampling, for truncated importance sampling; empty if they equal the old ones. At least one of these
  /// two arrays is present.
  std::span<const float> target_rollout_logprobs;

  int node_count() const { return int(nodes.size() / node_columns); }
  BatchNode node(int index) const {
    const int32_t* columns = &nodes[size_t(index) * node_columns];
    return {columns[0], columns[1], columns[2]};
  }
  int target_count() const { return int(target_rows.size()); }
};

struct BatchError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws BatchError that says which entry of which tensor is wrong. `mini_batches`: how many the update will apply.
void validate(const Batch& batch, const Architecture& architecture, int mini_batches);

}  // namespace longhaul
