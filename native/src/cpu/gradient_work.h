// The amounts that some rows add to gradients: products dYᵀ·X and sums of blocks. The work is cut into items that write to different
// places, so any thread may take any item; within an item the order is fixed.
#pragma once

#include <cstddef>
#include <vector>

#include "ops/ops.h"

namespace longhaul {

/// X[rows, columns] in blocks of 512 rows, in the order in which GEMM kernels read a right-hand side. Several threads may write at once,
/// each its own rows, while the rows are still in its cache.
class PackedRows {
 public:
  static constexpr int block_rows = 512;

  /// Reuses its memory; contents are unspecified until written.
  void resize(int rows, int columns);
  void write(const float* x, size_t ld_x, int first, int count);

  int rows() const { return rows_; }
  int columns() const { return columns_; }
  const std::vector<ops::Panels>& blocks() const { return blocks_; }

 private:
  int rows_ = 0, columns_ = 0;
  std::vector<ops::Panels> blocks_;  // there may be more blocks than `rows` need
};

/// C[outputs, columns of X] += dY[rows of X, outputs]ᵀ · X: one chain of fused multiply-adds over rows, starting from C.
struct GradientProduct {
  float* c;
  size_t ld_c;
  const float* dy;
  size_t ld_dy;
  const PackedRows* x;
  int outputs;
};

class GradientWork {
 public:
  explicit GradientWork(int threads) : threads_(threads) {}

  void clear() {
    products_.clear();
    sums_.clear();
  }
  void add(const GradientProduct& product);
  /// target[width] += blocks[count, width], the last block first.
  void add_blocks(float* target, const float* blocks, int count, int width) { sums_.push_back({target, blocks, count, width}); }

  size_t size() const { return products_.size() + sums_.size(); }
  void run(size_t item, const ops::Table& op) const;

 private:
  struct BlockSum {
    float* target;
    const float* blocks;
    int count, width;
  };

  int threads_;
  std::vector<GradientProduct> products_;
  std::vector<BlockSum> sums_;
};

}  // namespace longhaul
