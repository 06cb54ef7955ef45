// Forward and backward of a policy over a mini-batch's forest, on all threads of a pool, in passes of bounded size. The bits depend only on
// forest, targets and weights, not on the size of a pass, on recomputation, or on the number of threads.
//
// Canonical order. Rows are cut into pieces of 512, counted from the first row of the forest. Gradients go over pieces from the last to the
// first and, within a piece, row by row (weight gradients: one FMA chain; norms and biases: sums of blocks of 64 rows, added from the last
// block to the first). Attention adds to the gradients of keys and values node by node, from the last node (cut at pieces) to the first.
// Targets are ordered by the piece of their row, from the last to the first; within a piece by row; targets of one row in the order of
// `target_rows`. The head's gradient is one chain over them. Embedding rows are summed separately and added last, since a tied head's chain
// comes before them.
#pragma once

#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "model/policy.h"
#include "train/forest/forest.h"
#include "train/forest/pass_settings.h"

namespace longhaul {

class ForestPass {
 public:
  explicit ForestPass(ThreadPool& pool, ForestPassSettings settings = {});
  ~ForestPass();

  /// Takes effect at the next `begin`. Memory of larger passes is kept.
  void configure(ForestPassSettings settings);

  /// Sets the mini-batch. `target_rows` may be in any order and repeat. The arguments must outlive the use of this object. `passed` is
  /// called after each pass, forward or backward (not after a forward pass that a backward pass computes again).
  void begin(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows,
             std::span<const int32_t> target_tokens, float temperature, OnAdvance advanced = {}, OnAdvance passed = {});

  /// log softmax(logits / temperature) of each target's token; fills `entropies` [M] unless it is empty.
  void logprobs(std::span<float> out, std::span<float> entropies = {});

  /// Computes log-probs as above; then calls `derive` once, when every log-prob is known; then adds ∂L/∂(trained parameters) to
  /// `gradients`, laid out as policy.trained(). The last span of `derive` is empty if `trains_entropy` is false.
  void gradient(const Derive& derive, bool trains_entropy, std::span<float> gradients);

  /// Call it after every change of the policy's trained values, and between two policies that may have had the same address.
  void weights_changed();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
