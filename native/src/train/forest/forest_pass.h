// Forward and backward of a policy over a mini-batch's forest, on all threads of a pool, in passes of bounded size. The bits
// depend on forest, targets and weights alone: not on the size of a pass, on recomputation, or on the number of threads.
//
// Canonical order. Rows are cut into pieces of 512, counted from the first row of the forest. Gradients go over pieces from the last
// to the first, within a piece row by row (weight gradients: one FMA chain; norms and biases: sums of blocks of 64 rows, added from
// the last block to the first). Attention adds to the gradients of keys and values node by node, from the last (cut at pieces) to the first.
// Targets: by the piece of their row from the last to the first, in a piece by row, at a row as they were given; the head's gradient is one
// chain over them. Rows of the embedding are summed apart and added last: where the head is the same matrix, its chain comes first.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "model/policy.h"
#include "train/forest/forest.h"

namespace longhaul {

/// Called after each layer and each piece of the head, if given, on the calling thread: a long pass can report progress. May throw to end
/// the pass (a cancellation).
using OnAdvance = std::function<void()>;

constexpr int piece_rows = 512;

struct ForestPassSettings {
  /// At most this many rows' activations exist at once; a multiple of 512, at least 512.
  int pass_rows = 1 << 30;
  /// Keep only each layer's input, and compute a layer again in the backward pass.
  bool recompute = false;
};

class ForestPass {
 public:
  explicit ForestPass(ThreadPool& pool, ForestPassSettings settings = {});
  ~ForestPass();

  /// Holds from the next `begin`. Memory of larger passes is kept.
  void configure(ForestPassSettings settings);

  /// Sets the mini-batch; `target_rows` in any order, repeats allowed. The arguments must outlive the use of this object.
  /// `passed` is called after each pass, forward or backward (but not where a backward pass computes its forward again).
  void begin(const Policy& policy, const Forest& forest, std::span<const int32_t> target_rows,
             std::span<const int32_t> target_tokens, float temperature, OnAdvance advanced = {}, OnAdvance passed = {});

  /// log softmax(logits / temperature) of each target's token; `entropies` [M] where not empty.
  void logprobs(std::span<float> out, std::span<float> entropies = {});

  /// Log-probs as above, then derivatives from them (one call, after every log-prob is known), then adds ∂L/∂(trained parameters) to
  /// `gradients`, laid out as policy.trained(). `derive(logprobs, entropies, derivatives, entropy_derivatives)`; the last span
  /// is empty if `trains_entropy` is false.
  using Derive = std::function<void(std::span<const float> logprobs, std::span<const float> entropies,
                                    std::span<double> derivatives, std::span<double> entropy_derivatives)>;
  void gradient(const Derive& derive, bool trains_entropy, std::span<float> gradients);

  /// Must follow every change of what the policy trains, and stand between two policies that may have had the same address.
  void weights_changed();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul
