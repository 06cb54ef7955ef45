// Where a model's parameters lie: in one flat array. Each Hugging Face tensor is a range of rows of a fused matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/architecture.h"

namespace longhaul {

template <class T>
struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<T> values;
};

/// Rows [0, rows) of a matrix [rows, columns] inside a flat array; vectors (norms, biases) have rows = 1.
struct ParameterRange {
  size_t offset = 0;
  int rows = 0;
  int columns = 0;
  /// Whether weight decay applies: not to norms, biases and embeddings.
  bool decayed = false;

  size_t size() const { return size_t(rows) * size_t(columns); }
  bool empty() const { return rows == 0; }
};

/// Query, key and value projections are one matrix, gate and up another: one GEMM each.
/// `query_norm`, `key_norm` are empty without head norms, `qkv_bias` without biases.
struct LayerParameters {
  ParameterRange input_norm, qkv, qkv_bias, query_norm, key_norm, output, post_norm, gate_up, down;
};

struct ParameterLayout {
  ParameterRange embedding;
  std::vector<LayerParameters> layers;
  ParameterRange final_norm;
  /// Equal to `embedding` if the word embeddings are tied.
  ParameterRange head;
  size_t total = 0;

  explicit ParameterLayout(const Architecture& architecture);
  ParameterLayout() = default;
  /// Every distinct non-empty range, in storage order.
  std::vector<ParameterRange> ranges() const;
};

/// A named tensor inside a flat array.
struct TensorPlace {
  std::string name;
  std::vector<int64_t> shape;
  size_t offset = 0;
  size_t size = 0;
  /// True for o_proj and down_proj, which write into the residual stream: their initial weights shrink with depth.
  bool residual_output = false;
};

/// The model's Hugging Face tensors, sorted by name; `lm_head.weight` only if untied.
std::vector<TensorPlace> tensor_places(const Architecture& architecture, const ParameterLayout& layout);

}  // namespace longhaul
