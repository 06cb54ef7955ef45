#include "backend/inference/cpu_extension.h"

#include <algorithm>

namespace longhaul {

namespace {

/// The CPU for all rows of a call at once: each operation is shared out among the threads.
struct WholeRows {
  using Activation = float;
  template <class T>
  using Buffer = CpuBuffer<T>;

  const CpuDevice& device;

  const Architecture& architecture() const { return device.architecture(); }
  const ParameterLayout& layout() const { return device.layout(); }
  const CpuLinears& linears(int layer) const { return device.linears(layer); }
  static CpuScratch& scratch() { return CpuDevice::scratch(); }
  void rms_norm(const float* x, const ParameterRange& norm, float* y, float*, int rows) const {
    const size_t width = size_t(architecture().hidden_size);
    device.feed_rows(rows, [&](RowRange at) {
      device.rms_norm(x + size_t(at.first) * width, norm, y + size_t(at.first) * width, nullptr, at.count);
    });
  }
  void swiglu(const float* gate_up, float* y, int rows) const {
    const size_t width = size_t(architecture().intermediate_size);
    device.feed_rows(rows, [&](RowRange at) { device.swiglu(gate_up + size_t(at.first) * 2 * width, y + size_t(at.first) * width, at.count); });
  }
  void gather(Matrix<const float> from, const int32_t* indices, Matrix<float> to, int rows, int width) const {
    device.gather(from, indices, to, rows, width);
  }
};

}  // namespace

void CpuExtension::through_layers() {
  by_columns_ = split_ == Split::by_columns || (split_ == Split::as_fits && better_by_columns());
  if (by_columns_) return run_by_columns();
  if ((split_ == Split::in_turns || (split_ == Split::as_fits && better_in_turns())) && alone()) return run_in_turns();
  Extension::through_layers();
}

bool CpuExtension::better_by_columns() const {
  constexpr int most_rows = 512;  // the activations of all rows exist at once
  const Architecture& arch = architecture();
  const size_t layer = width() * (qkv_width() + size_t(arch.query_width()) + 3 * size_t(arch.intermediate_size));
  const bool few = rows_.size() < CpuDevice::kernel_rows * device_.threads();
  return device_.threads() > 1 && rows_.size() <= most_rows && layer >= (few ? size_t(1) << 18 : size_t(1) << 21);
}

void CpuExtension::multiply(const ops::Panels& weights, const float* x, float* y, int rows, bool accumulate) {
  // Units are small, so that the weights of one unit stay in a core's cache while all rows pass by.
  const int panels = ops::panel_count(weights.columns), unit = std::clamp(panels / (4 * device_.threads()), 1, 4);
  device_.tiles(panels, unit, [&](RowRange at) {
    device_.op().matmul_panels(x, size_t(weights.depth), weights, at.first, at.first + at.count, y, size_t(weights.columns), rows, accumulate);
  });
}

void CpuExtension::run_by_columns() {
  const int layers = architecture().num_hidden_layers;
  const size_t query_width = size_t(architecture().query_width());
  WholeRows all{device_};
  const auto by_columns = [&](const CpuLinear& linear, Matrix<const float> x, Matrix<float> y, int rows, bool accumulate, float* down) {
    multiply(*linear.weight, x.data, y.data, rows, accumulate);
    if (!linear.bias && !linear.adapter) return;
    // (Adapters are small, so each thread computes them for its rows.)
    device_.feed_rows(rows, [&](RowRange at) {
      float* own = down + size_t(at.first) * size_t(linear.adapter_width());
      adapt_down(device_, linear, {x.data + size_t(at.first) * x.ld, x.ld}, own, at.count);
      finish<float>(device_, linear, own, {y.data + size_t(at.first) * y.ld, y.ld}, at.count);
    });
  };
  device_.feed_rows(rows_.size(), [&](RowRange at) { embed(at); });
  for (int layer = 0; layer < layers; ++layer) {
    project_rows(all, layer, {0, rows_.size()}, hidden(0), qkv(0), nullptr, by_columns);
    device_.feed_rows(rows_.size(), [&](RowRange at) { rotate_and_store(layer, at); });
    if (layer + 1 == layers) keep_wanted();
    const int rows = rows_.size();
    if (rows == 0) return;
    float* attention = CpuDevice::scratch().attention.room(size_t(rows) * query_width);
    device_.tiles(rows, std::min(device_.attention_rows(rows_), device_.unit_rows(rows)), [&](RowRange at) {
      device_.attend(*cache_, layer, &rows_, at, qkv(at.first), attention + size_t(at.first) * query_width);
    });
    float* gate_up = CpuDevice::scratch().gate_up.room(size_t(rows) * 2 * size_t(architecture().intermediate_size));
    transform_rows(all, layer, {0, rows}, attention, hidden(0), gate_up, hidden(0), nullptr, by_columns);
  }
}

void CpuExtension::head(RowRange targets, float* logits) {
  if (!by_columns_) return Extension::head(targets, logits);
  float* normed = CpuDevice::scratch().normed.room(size_t(targets.count) * width());
  device_.feed_rows(targets.count, [&](RowRange at) { norm_wanted(targets, at, normed + size_t(at.first) * width()); });
  multiply(*device_.head(), normed, logits, targets.count, false);
}

}  // namespace longhaul
