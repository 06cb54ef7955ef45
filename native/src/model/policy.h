// The policy: weights, AdamW moments and the number of optimizer steps. What the state digest covers is what `tensors` lists.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "model/architecture.h"
#include "ops/ops.h"

namespace longhaul {

template <class T>
struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<T> values;
};

/// Rows [0, rows) of a weight matrix [rows, columns] inside the flat parameter array; norms have rows = 1.
struct ParameterRange {
  size_t offset = 0;
  int rows = 0;
  int columns = 0;
  /// Weight decay leaves norms and embeddings alone.
  bool decayed = false;

  size_t size() const { return size_t(rows) * size_t(columns); }
};

/// Query, key and value projections are one matrix, gate and up another: one GEMM each. The Hugging Face tensors are
/// contiguous row ranges of them.
struct LayerParameters {
  ParameterRange input_norm, qkv, query_norm, key_norm, output, post_norm, gate_up, down;
};

struct ParameterLayout {
  ParameterRange embedding;
  std::vector<LayerParameters> layers;
  ParameterRange final_norm;
  /// Equal to `embedding` where the word embeddings are tied.
  ParameterRange head;
  size_t total = 0;

  explicit ParameterLayout(const Architecture& architecture);
  ParameterLayout() = default;
  /// Every distinct range, in storage order.
  std::vector<ParameterRange> ranges() const;
};

struct LayerPanels {
  ops::Panels qkv, output, gate_up, down;
};

/// Copies of the weight matrices in the order the GEMM kernels read them.
struct PolicyPanels {
  std::vector<LayerPanels> layers;
  ops::Panels head;
};

class Policy {
 public:
  /// All weights zero (norms too); fill `tensors()` and call `weights_changed`, or call `initialize`.
  explicit Policy(const Architecture& architecture);

  /// Normal weights with this standard deviation (Philox domain 3), o_proj and down_proj divided by √(2·layers), norms 1,
  /// moments 0, optimizer steps 0. The bits depend on architecture, range and seed alone.
  void initialize(double initializer_range, uint64_t seed);

  const Architecture& architecture() const { return architecture_; }
  const ParameterLayout& layout() const { return layout_; }

  /// All tensors of the state, sorted by name: `adam.m.*`, `adam.v.*`, `lm_head.weight` (untied only), `model.*`.
  std::vector<NamedTensor<float>> tensors();
  std::vector<NamedTensor<const float>> tensors() const;

  /// Flat parameters and moments, [layout().total] each.
  std::span<float> weights() { return weights_.span(); }
  std::span<const float> weights() const { return weights_.span(); }
  std::span<float> first_moments() { return first_moments_.span(); }
  std::span<const float> first_moments() const { return first_moments_.span(); }
  std::span<float> second_moments() { return second_moments_.span(); }
  std::span<const float> second_moments() const { return second_moments_.span(); }

  const float* weight(const ParameterRange& range) const { return weights_.data() + range.offset; }

  int64_t optimizer_steps = 0;

  /// Must follow every change of the weights: rebuilds the panels that a forward pass reads.
  void weights_changed(ThreadPool* pool = nullptr);
  /// Rows of W, for y = x·Wᵀ.
  const PolicyPanels& forward_panels() const { return forward_; }
  /// Columns of W, for dx = dy·W: whoever trains keeps them, since a state that is only sampled from needs none.
  void pack_backward(PolicyPanels& out, ThreadPool* pool = nullptr) const;

  /// cos and sin of the rotary embedding, [max_position_embeddings, head_dim / 2].
  const float* rope_cos() const { return rope_cos_.data(); }
  const float* rope_sin() const { return rope_sin_.data(); }

 private:
  Architecture architecture_;
  ParameterLayout layout_;
  AlignedBuffer weights_{BufferMemory::mapped}, first_moments_{BufferMemory::mapped}, second_moments_{BufferMemory::mapped};
  PolicyPanels forward_;
  AlignedBuffer rope_cos_, rope_sin_;
};

}  // namespace longhaul
