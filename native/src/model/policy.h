// The policy: weights, its trained part (all of them, or adapters beside them), AdamW's moments and the number of optimizer steps.
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

/// A piece that the optimizer works on: a range of the trained array.
struct TrainedRange {
  size_t offset, size;
  bool decayed;
};

/// A value type: copies share frozen weights and copy the trained part. Assignment keeps the memory. Weights with another holder
/// (`shared_weights`: a reference) are never written: a caller that asks to write gets a copy.
class Policy {
 public:
  /// Full fine-tuning from these weights (copied, or taken over if they have no other holder); `changed` has been called on them.
  explicit Policy(std::shared_ptr<Weights> weights, MomentFormat moments = MomentFormat::fp32);
  /// LoRA beside frozen weights, on which `changed` has been called; adapters are initialised from `seed`. Ready for use.
  Policy(std::shared_ptr<const Weights> base, const LoraSettings& lora, uint64_t seed,
         MomentFormat moments = MomentFormat::fp32);
  /// Nothing is trained: weights, on which `changed` has been called, for forward passes alone. Copies share them.
  static Policy frozen(std::shared_ptr<const Weights> weights);
  Policy(const Policy& other);
  Policy& operator=(const Policy& other);
  Policy(Policy&&) = default;

  const Architecture& architecture() const { return weights_->architecture(); }
  const ParameterLayout& layout() const { return weights_->layout(); }
  const Weights& weights() const { return *weights_; }
  std::shared_ptr<const Weights> shared_weights() const { return weights_; }
  /// Throws std::logic_error if they are frozen.
  Weights& own_weights();
  /// Null without LoRA.
  const Adapters* adapters() const { return adapters_ ? &*adapters_ : nullptr; }
  Adapters* adapters() { return adapters_ ? &*adapters_ : nullptr; }

  /// The flat array that the optimizer steps: the weights', or the adapters'; empty if nothing is trained.
  std::span<float> trained();
  std::span<const float> trained() const;
  /// Its ranges in storage order. Adapters decay as matrices do.
  std::vector<TrainedRange> trained_ranges() const;
  /// Named tensors of the trained array, sorted by name (their places in `trained()`).
  std::vector<TensorPlace> trained_places() const;

  Moments& moments() { return moments_; }
  const Moments& moments() const { return moments_; }
  int64_t optimizer_steps = 0;

  /// Must follow every change of the trained part.
  void changed(ThreadPool* pool = nullptr);

 private:
  Policy() = default;
  /// Whether copies share the weights, which are then never written.
  bool shares_weights() const { return frozen_ || adapters_; }

  std::shared_ptr<Weights> weights_;
  bool frozen_ = false;
  std::optional<Adapters> adapters_;
  Moments moments_;
};

}  // namespace longhaul
