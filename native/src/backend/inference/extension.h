// Runs one call of `extend`: some rows through all layers. Threads share the work by rows, by rows in turns (extension_turns.cc) or by
// columns of the weights. The choice never changes a bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cpu_device.h"
#include "backend/inference/decode.h"

namespace longhaul {

/// The rows of a call. Feeds with a common prefix are neighbours, so that attention can read the prefix once for all of them.
struct ExtensionRows {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<const int32_t*> block_tables;
  /// The rows with wanted logits, in the order of the logits.
  std::vector<int> wanted;
  int longest = 0;

  int size() const { return int(tokens.size()); }
};

/// Rows of one unit of work. Units are of equal size and as large as their activations allow, since every unit reads all weights of a
/// layer; each thread gets the same number of units.
inline int unit_rows(int rows, int threads) {
  constexpr int most = 192;
  const int rounds = (rows + threads * most - 1) / (threads * most);
  return (rows + threads * rounds - 1) / (threads * rounds);
}

class Extension {
 public:
  Extension(const Policy& policy, KvCache& cache, ExtensionRows rows, ThreadPool& pool);

  /// Every thread takes some rows through a layer. Threads synchronise once a layer, but each reads all weights.
  void run_by_rows(float* logits);
  /// Every thread takes some columns of each matrix for all rows. Weights are read once, but threads synchronise nine times a layer.
  void run_by_columns(float* logits);
  /// Every thread splits its rows into two halves, which go through all layers in turns. Between the panels of one half's products, rows of
  /// the other half attend to keys and values that these products prefetched. Only if `alone()`.
  void run_in_turns(float* logits);
  /// True if no row reads values that another row writes, so that rows need not wait for each other.
  bool alone() const;
  /// Whether `run_in_turns` is likely to be faster than `run_by_rows`: the halves are long enough, and few rows share keys and values.
  bool better_in_turns() const;
  /// Whether `run_by_columns` is likely to be faster: few rows, and the weights of a layer do not fit the caches.
  bool better_by_columns() const;

 private:
  float* hidden(int row) { return hidden_ + size_t(row) * architecture_.hidden_size; }
  float* qkv(int row) { return qkv_ + size_t(row) * architecture_.qkv_width(); }

  /// Calls work(first, count) for units of consecutive rows of [0, count), on all threads.
  template <class Work>
  void each_unit(int count, int unit, Work&& work);
  template <class Work>
  void each_unit(int count, Work&& work);
  /// y (+)= x·W for all rows, on all threads.
  void multiply(const ops::Panels& weights, const float* x, float* y, int rows, bool accumulate);

  // Stages of the computation for rows [first, first + count).
  void embed(int first, int count);
  void rotate_and_store(int layer, int first, int count);
  void attend(int layer, int first, int count, float* out);
  void project(int layer, int first, int count);
  void attend_and_transform(int layer, int first, int count);
  void head(int first, int count, float* logits);

  /// One half of a thread's rows.
  struct Half {
    int first, count;
    int end() const { return first + count; }
  };
  class Attendance;
  auto beside(Attendance& others);
  /// Computes, from a half's attention, its queries, keys and values in the next layer, while the other half attends.
  void transform_beside(int layer, Half half, const float* attention, Attendance& others);
  void project_beside(int layer, Half half, Attendance& others);

  /// Keeps only the rows with wanted logits and moves them to the front, in their order.
  void keep_wanted();

  ThreadPool& pool_;
  CpuDevice device_;
  const Architecture& architecture_;
  KvCache& cache_;
  ExtensionRows rows_;
  float* hidden_;
  float* qkv_;
};

template <class Work>
void Extension::each_unit(int count, int unit, Work&& work) {
  pool_.parallel_for(size_t(count + unit - 1) / unit,
                     [&](size_t i) { work(int(i) * unit, std::min(unit, count - int(i) * unit)); });
}

template <class Work>
void Extension::each_unit(int count, Work&& work) {
  each_unit(count, unit_rows(count, pool_.threads()), work);
}

}  // namespace longhaul
