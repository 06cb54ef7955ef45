// One call of `extend` at work: some rows through all layers, shared among threads by rows or by columns of the weights.
// Which of the two never changes a bit.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "model/decode.h"
#include "model/linear.h"

namespace longhaul {

/// The rows of a call, feeds with a common prefix side by side so that attention can batch them over it.
struct ExtensionRows {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<const int32_t*> block_tables;
  /// Rows whose logits are wanted, in the order of their logits.
  std::vector<int> wanted;
  int longest = 0;

  int size() const { return int(tokens.size()); }
};

class Extension {
 public:
  Extension(const Policy& policy, KvCache& cache, ExtensionRows rows, ThreadPool& pool);

  /// Every thread takes some rows through a layer: one meeting of threads a layer, but each reads all weights.
  void run_by_rows(float* logits);
  /// Every thread takes some columns of each matrix for all rows: weights are read once, at nine meetings a layer.
  void run_by_columns(float* logits);
  /// Whether by columns is likely to be faster: the weights of a layer do not fit the caches beside few rows.
  bool better_by_columns() const;

 private:
  float* hidden(int row) { return hidden_ + size_t(row) * architecture_.hidden_size; }
  float* qkv(int row) { return qkv_ + size_t(row) * architecture_.qkv_width(); }

  /// work(first, count) for units of consecutive rows of [0, count), on all threads.
  template <class Work>
  void each_unit(int count, int unit, Work&& work);
  template <class Work>
  void each_unit(int count, Work&& work);
  /// y (+)= x·W for all rows, on all threads.
  void multiply(const ops::Panels& weights, const float* x, float* y, int rows, bool accumulate);

  // Stages of rows [first, first + count).
  void embed(int first, int count);
  void normalize(const ParameterRange& norm, int first, int count, float* normed);
  void rotate_and_store(int layer, int first, int count);
  void attend(int layer, int first, int count, float* out);
  void project(int layer, int first, int count);
  void attend_and_transform(int layer, int first, int count);
  void head(int first, int count, float* logits);

  /// Leaves only the rows whose logits are wanted, moved to the front in their order.
  void keep_wanted();

  const Weights& weights_;
  const Architecture& architecture_;
  const ops::Table& op_;
  KvCache& cache_;
  ExtensionRows rows_;
  ThreadPool& pool_;
  std::vector<LayerLinears> linears_;
  float* hidden_;
  float* qkv_;
};

}  // namespace longhaul
