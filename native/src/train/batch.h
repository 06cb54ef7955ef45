// What one step's update reads: rows are the tokens of a forest, targets are the tokens that carry loss.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "model/architecture.h"

namespace longhaul {

constexpr int logical_shards = 8;

/// Views of the tensors of a batch file (docs/engine-protocol.md, "The batch file").
struct Batch {
  /// [N, 4]: parent (−1 for a root), length, mini-batch, shard.
  std::span<const int32_t> nodes;
  /// [T], in node order.
  std::span<const int32_t> tokens;
  /// [M] each.
  std::span<const int32_t> target_rows;
  std::span<const int32_t> target_tokens;
  std::span<const float> target_advantages;
  std::span<const float> target_old_logprobs;
  /// [M, 2]: mini-batch, shard.
  std::span<const int32_t> target_shards;

  int node_count() const { return int(nodes.size() / 4); }
  int target_count() const { return int(target_rows.size()); }
};

struct BatchError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws BatchError that says which entry of which tensor is wrong. `mini_batches` is the number the update will apply.
void validate(const Batch& batch, const Architecture& architecture, int mini_batches);

}  // namespace longhaul
