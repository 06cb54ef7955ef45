#include "train/gradient_work.h"

#include <algorithm>

namespace longhaul {

namespace {

/// An item's part of C: large enough that packing X and transposing dY cost little beside the product, small enough for the cache.
constexpr int item_outputs = 192, item_panels = 8;
/// Of X at once; the chain goes on from C.
constexpr int packed_rows = 512;

int rounded_up(int n, int unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

void GradientWork::add(const GradientProduct& product) {
  if (product.rows == 0) return;
  const int panels = (product.inputs + ops::panel_columns - 1) / ops::panel_columns;
  const int columns = std::min(panels, item_panels) * ops::panel_columns;
  // Equal shares: as many items a thread has, all of about one size.
  int parts = (product.outputs + item_outputs - 1) / item_outputs;
  if (product.outputs >= 2 * threads_ * 48) parts = rounded_up(parts, threads_);
  const int outputs = std::max(48, rounded_up((product.outputs + parts - 1) / parts, 12));
  for (int o = 0; o < product.outputs; o += outputs)
    for (int i = 0; i < product.inputs; i += columns) {
      GradientProduct item = product;
      item.c += size_t(o) * product.ld_c + i;
      item.dy += o;
      item.x += i;
      item.outputs = std::min(outputs, product.outputs - o);
      item.inputs = std::min(columns, product.inputs - i);
      products_.push_back(item);
    }
}

void GradientWork::run(size_t item, const ops::Table& op) const {
  if (item < products_.size()) {
    const GradientProduct& product = products_[item];
    static thread_local ops::Panels panels;
    const int count = (product.inputs + ops::panel_columns - 1) / ops::panel_columns;
    panels.columns = product.inputs;
    for (int row = 0; row < product.rows; row += packed_rows) {
      panels.depth = std::min(packed_rows, product.rows - row);
      room(panels.values, size_t(count) * panels.depth * ops::panel_columns);
      op.pack(product.x + size_t(row) * product.ld_x, product.ld_x, panels, 0, count);
      op.matmul_transposed(product.dy + size_t(row) * product.ld_dy, product.ld_dy, panels, product.c, product.ld_c, product.outputs);
    }
    return;
  }
  const BlockSum& sum = sums_[item - products_.size()];
  for (int b = sum.count - 1; b >= 0; --b) op.add(sum.target, sum.blocks + size_t(b) * sum.width, size_t(sum.width));
}

}  // namespace longhaul
