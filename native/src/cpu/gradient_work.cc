#include "cpu/gradient_work.h"

#include <algorithm>
#include <cstring>

namespace longhaul {

namespace {

/// Rows of C in one item: as many as the kernel takes at once, so that it rearranges dY once for all columns
/// (cpu/gemm_kernels.h).
constexpr int item_outputs = 192;

int divided_up(int n, int unit) { return (n + unit - 1) / unit; }

}  // namespace

void PackedRows::resize(int rows, int columns) {
  rows_ = rows;
  columns_ = columns;
  const size_t count = size_t(divided_up(rows, block_rows));
  if (blocks_.size() < count) blocks_.resize(count);
  for (size_t b = 0; b < count; ++b) {
    blocks_[b].depth = std::min(block_rows, rows - int(b) * block_rows);
    blocks_[b].columns = columns;
    const size_t floats = size_t(ops::panel_count(columns)) * ops::panel_columns * block_rows;
    if (blocks_[b].values.size() < floats) blocks_[b].values.resize(floats);
  }
}

void PackedRows::write(const float* x, size_t ld_x, int first, int count) {
  for (int row = first; row < first + count; ++row, x += ld_x) {
    ops::Panels& block = blocks_[size_t(row / block_rows)];
    float* to = block.values.data() + size_t(row % block_rows) * ops::panel_columns;
    const size_t stride = size_t(block.depth) * ops::panel_columns;
    int column = 0;
    for (; column + ops::panel_columns <= columns_; column += ops::panel_columns, to += stride)
      std::memcpy(to, x + column, ops::panel_columns * sizeof(float));
    if (column == columns_) continue;
    std::memset(to, 0, ops::panel_columns * sizeof(float));
    std::memcpy(to, x + column, size_t(columns_ - column) * sizeof(float));
  }
}

void GradientWork::add(const GradientProduct& product) {
  if (product.x->rows() == 0) return;
  // A small product becomes a few items of about equal size for each thread; a large one, items of the kernel's size.
  int outputs = item_outputs;
  if (product.outputs < 4 * threads_ * item_outputs) {
    const int parts = divided_up(divided_up(product.outputs, item_outputs), threads_) * threads_;
    outputs = std::max(48, divided_up(divided_up(product.outputs, parts), 12) * 12);
  }
  for (int o = 0; o < product.outputs; o += outputs) {
    GradientProduct item = product;
    item.c += size_t(o) * product.ld_c;
    item.dy += o;
    item.outputs = std::min(outputs, product.outputs - o);
    products_.push_back(item);
  }
}

void GradientWork::run(size_t item, const ops::Table& op) const {
  if (item < products_.size()) {
    const GradientProduct& product = products_[item];
    const float* dy = product.dy;
    for (int row = 0; row < product.x->rows(); row += PackedRows::block_rows) {
      const ops::Panels& block = product.x->blocks()[size_t(row / PackedRows::block_rows)];
      op.matmul_transposed(dy, product.ld_dy, block, product.c, product.ld_c, product.outputs);
      dy += size_t(block.depth) * product.ld_dy;
    }
    return;
  }
  const BlockSum& sum = sums_[item - products_.size()];
  for (int b = sum.count - 1; b >= 0; --b) op.add(sum.target, sum.blocks + size_t(b) * sum.width, size_t(sum.width));
}

}  // namespace longhaul
