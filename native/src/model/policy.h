// The policy: weights, the trained part (all weights, or adapters beside them), AdamW's moments and the number of optimizer steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/adapters.h"
#include "model/moments.h"
#include "model/weights.h"

namespace longhaul {

/// A range of the trained array, for the optimizer.
struct TrainedRange {
  size_t offset, size;
  bool decayed;
};

/// A value type: copies share frozen weights and copy the trained part; assignment reuses memory. Weights that have another holder
/// (`shared_weights`, such as a reference) are never written: a caller that asks to write gets a copy.
class Policy {
 public:
  /// Full fine-tuning from these weights. They are copied if they have another holder.
  explicit Policy(std::shared_ptr<Weights> weights, MomentFormat moments = MomentFormat::fp32);
  /// LoRA beside frozen weights. Adapters are initialised from `seed`; the policy is ready for use.
  Policy(std::shared_ptr<const Weights> base, const LoraSettings& lora, uint64_t seed,
         MomentFormat moments = MomentFormat::fp32);
  /// Weights for forward passes only: nothing is trained. Copies share them.
  static Policy frozen(std::shared_ptr<const Weights> weights);
  Policy(const Policy& other);
  Policy& operator=(const Policy& other);
  Policy(Policy&&) = default;

  const Architecture& architecture() const { return weights_->architecture(); }
  const ParameterLayout& layout() const { return weights_->layout(); }
  const Weights& weights() const { return *weights_; }
  std::shared_ptr<const Weights> shared_weights() const { return weights_; }
  /// Throws std::logic_error if the weights are frozen.
  Weights& own_weights();
  /// Null without LoRA.
  const Adapters* adapters() const { return adapters_ ? &*adapters_ : nullptr; }
  Adapters* adapters() { return adapters_ ? &*adapters_ : nullptr; }

  /// The flat array that the optimizer updates: the weights or the adapters; empty if nothing is trained.
  std::span<float> trained();
  std::span<const float> trained() const;
  /// The ranges of `trained()`, in storage order. Adapters decay as matrices do.
  std::vector<TrainedRange> trained_ranges() const;
  /// Named tensors of the trained array, sorted by name, with their places in `trained()`.
  std::vector<TensorPlace> trained_places() const;

  Moments& moments() { return moments_; }
  const Moments& moments() const { return moments_; }
  int64_t optimizer_steps = 0;

  /// Call it after every change of a trained part that may have been packed.
  void changed();
  /// Packs what is not packed of the matrices that a CPU's forward pass reads. One thread at a time.
  void pack_forward(ThreadPool* pool, ops::Arithmetic arithmetic = ops::Arithmetic::fp32) const;

 private:
  Policy() = default;
  /// Whether copies share the weights. Shared weights are never written.
  bool shares_weights() const { return frozen_ || adapters_; }

  std::shared_ptr<Weights> weights_;
  bool frozen_ = false;
  std::optional<Adapters> adapters_;
  Moments moments_;
};

}  // namespace longhaul
