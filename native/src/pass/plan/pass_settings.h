// What a caller of passes over a forest chooses, and how it is told of their progress and asked for the loss.
#pragma once

#include <functional>
#include <span>

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

/// Gives ∂L/∂logprob and ∂L/∂entropy of each target, from the log-probs and entropies of all.
using Derive = std::function<void(std::span<const float> logprobs, std::span<const float> entropies,
                                  std::span<double> derivatives, std::span<double> entropy_derivatives)>;

}  // namespace longhaul
