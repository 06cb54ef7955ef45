// `extend` on the CPU. Threads share the work by rows, by rows in turns (extension_turns.cc) or by columns of the weights. The choice
// never changes a bit.
#pragma once

#include "backend/cpu_device.h"
#include "backend/inference/kv_cache.h"
#include "pass/extension.h"

namespace longhaul {

/// How threads share the work of a call: by rows; by columns of the weights (for large models and few rows); or by rows in two halves that
/// take turns (for rows that only decode; other rows are split by rows).
enum class Split { as_fits, by_rows, by_columns, in_turns };

class CpuExtension final : public Extension<CpuDevice> {
 public:
  /// In bf16 always by rows.
  explicit CpuExtension(ThreadPool& pool, ops::Arithmetic arithmetic = ops::Arithmetic::fp32, Split split = Split::as_fits)
      : Extension(CpuDevice(pool, arithmetic)), split_(arithmetic == ops::Arithmetic::bf16 ? Split::by_rows : split) {}

 private:
  /// By rows, every thread takes some rows through a layer. Threads synchronise once a layer, but each reads all weights.
  void through_layers() override;
  /// Every thread takes some columns of each matrix for all rows. Weights are read once, but threads synchronise nine times a layer, or up to 13.
  void run_by_columns();
  /// Every thread splits its rows into two halves, which go through all layers in turns. Between the panels of one half's products, rows of
  /// the other half attend to keys and values that these products prefetched. Only if `alone()`.
  void run_in_turns();
  /// True if no row reads values that another row writes, so that rows need not wait for each other.
  bool alone() const;
  /// Whether `run_in_turns` is likely to be faster than by rows: the halves are long enough, and few rows share keys and values.
  bool better_in_turns() const;
  /// Whether `run_by_columns` is likely to be faster: few rows, and the weights of a layer do not fit the caches.
  bool better_by_columns() const;
  void head(RowRange targets, float* logits) override;
  /// y (+)= x·W for all rows, on all threads.
  void multiply(const ops::Panels& weights, const float* x, float* y, int rows, bool accumulate);

  class Attendance;
  auto beside(Attendance& others);
  /// Computes, from a half's attention, its queries, keys and values in the next layer, while the other half attends.
  void transform_beside(int layer, RowRange half, const float* attention, Attendance& others);
  void project_beside(int layer, RowRange half, Attendance& others);

  const Split split_;
  bool by_columns_ = false;
};

}  // namespace longhaul
