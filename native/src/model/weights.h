// A model's weights and the packed copies that GEMM kernels read, shared by all policies that train adapters on them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "model/parameters.h"
#include "model/rope.h"
#include "model/rounded_copy.h"
#include "ops/ops.h"

namespace longhaul {

struct LayerPanels {
  ops::Panels qkv, output, gate_up, down;
};

/// Copies of the weight matrices in the order the GEMM kernels read them.
struct WeightPanels {
  std::vector<LayerPanels> layers;
  ops::Panels head;
};

class Weights {
 public:
  /// All zero (norms too): fill `values()` or `tensors()`, or call `initialize`.
  explicit Weights(const Architecture& architecture, ThreadPool* pool = nullptr);
  /// A deep copy, except for the rotary table, which is shared. Assignment reuses memory.
  Weights(const Weights&) = default;
  Weights& operator=(const Weights&) = default;

  /// Draws normal weights with this standard deviation (Philox domain 3), divides o_proj and down_proj by √(2·layers),
  /// sets norms to 1 and biases to 0. The bits depend only on architecture, range and seed.
  void initialize(double initializer_range, uint64_t seed, ThreadPool* pool = nullptr);

  const Architecture& architecture() const { return architecture_; }
  const ParameterLayout& layout() const { return layout_; }
  const RopeTable& rope() const { return *rope_; }

  /// [layout().total]
  std::span<float> values() { return values_.span(); }
  std::span<const float> values() const { return values_.span(); }
  const float* at(const ParameterRange& range) const { return values_.data() + range.offset; }

  /// Hugging Face names, sorted.
  std::vector<NamedTensor<float>> tensors();
  std::vector<NamedTensor<const float>> tensors() const;

  /// Call it after every change of values that may have been packed.
  void changed() {
    packed_ = false;
    rounded_.changed();
  }
  /// Packs the rows of W, for y = x·Wᵀ, unless they are packed; in bf16, those of `computed`. Only a CPU's forward pass reads them. One thread
  /// at a time.
  void pack_forward(ThreadPool* pool, ops::Arithmetic arithmetic = ops::Arithmetic::fp32) const;
  /// Throws std::logic_error if they are not packed.
  const WeightPanels& forward_panels() const;
  /// What passes compute with: these weights, or in bf16 a copy of their upper halves. Throws std::logic_error if it is not packed.
  const Weights& computed(ops::Arithmetic arithmetic) const { return arithmetic == ops::Arithmetic::bf16 ? rounded_.get() : *this; }
  void drop_rounded() { rounded_ = {}; }
  /// Packs the columns of W, for dx = dy·W. Only training needs them, so the trainer keeps them.
  void pack_backward(WeightPanels& out, ThreadPool* pool = nullptr) const;

 private:
  Architecture architecture_;
  ParameterLayout layout_;
  AlignedBuffer values_{BufferMemory::copied};
  mutable WeightPanels forward_;
  mutable bool packed_ = false;
  mutable RoundedCopy<Weights> rounded_;
  std::shared_ptr<const RopeTable> rope_;
};

}  // namespace longhaul
