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

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "model/policy.h"
#include "train/forest/forest.h"

namespace longhaul {

/// If given, called on the calling thread after each layer and each piece of the head, so that a long pass can report progress. May throw
/// to end the pass (a cancellation).
using OnAdvance = std::function<void()>;

constexpr int piece_rows = 512;

struct ForestPassSettings {
  /// The most rows whose activations exist at once; a multiple of 512, at least 512.
  int pass_rows = 1 << 30;
  /// Keep only each layer's input, and compute the layer again in the backward pass.
  bool recompute = false;
};

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
  /// `gradients`, laid out as policy.trained(). `derive(logprobs, entropies, derivatives, entropy_derivatives)`; the last span is empty if
  /// `trains_entropy` is false.
  using Derive = std::function<void(std::span<const float> logprobs, std::span<const float> entropies,
                                    std::span<double> derivatives, std::span<double> entropy_derivatives)>;
  void gradient(const Derive& derive, bool trains_entropy, std::span<float> gradients);

  /// Call it after every change of the policy's trained values, and between two policies that may have had the same address.
  void weights_changed();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
