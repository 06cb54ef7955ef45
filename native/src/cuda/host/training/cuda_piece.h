// Backward layers on the device: an operation is launched over all rows of a pass, gradients over pieces of 512 rows from the last to the
// first.
#pragma once

#include <span>

#include "cuda/host/buffer.h"
#include "cuda/host/device_model.h"
#include "cuda/host/training/gradient_check.h"
#include "pass/layer.h"
#include "pass/rows.h"

namespace longhaul::cuda {

/// Working memory of a layer's backward pass, beside what all devices have.
struct CudaScratch : RowScratch<Buffer, float> {
  Buffer<float> d_gate_up, blocks, pulls;
};

/// All rows of a pass (in the last layer: its outputs), and their pieces.
class CudaPiece {
 public:
  CudaPiece(std::span<const RowRange> pieces, const DeviceModel& model, CudaScratch& scratch, GradientCheck& check, float* gradients,
            Stream stream)
      : rows{0, pieces.front().first + pieces.front().count},
        pieces_(pieces),
        model_(model),
        scratch_(scratch),
        check_(check),
        gradients_(gradients),
        stream_(stream) {}

  const RowRange rows;

  /// Gradients are added before these rows change.
  const float* lasting(const float* d_output) const { return d_output; }
  float* d_gate_up() { return scratch_.d_gate_up.room(size_t(rows.count) * 2 * size_t(model_.architecture().intermediate_size)); }

  void linear_backward(Part part, const DeviceLinear& linear, Matrix<const float> dy, Matrix<const float> x, const float* down, float* dx);
  /// dx += …
  void norm_backward(const ParameterRange& norm, const float* x, const float* inverse, const float* dy, float* dx);
  /// In place; only the rotation if the norm's range is empty.
  void rotate_backward(Matrix<float> dx, const ParameterRange& norm, const int32_t* positions, Matrix<const float> saved,
                       Matrix<const float> inverse, int heads);
  void bias_backward(const ParameterRange& bias, Matrix<const float> dy);

 private:
  bool trained(const ParameterRange& range) const { return !range.empty() && !model_.frozen(); }
  /// Where a gradient is added, and the memory of the sums of blocks that it is added up from; null if it is not trained.
  float* gradient(const ParameterRange& range) { return trained(range) ? gradients_ + range.offset : nullptr; }
  float* blocks(const ParameterRange& range, RowRange piece) {
    return trained(range) ? scratch_.blocks.room(size_t(sum_blocks(piece.count)) * size_t(range.columns)) : nullptr;
  }

  std::span<const RowRange> pieces_;
  const DeviceModel& model_;
  CudaScratch& scratch_;
  GradientCheck& check_;
  float* gradients_;
  Stream stream_;
};

}  // namespace longhaul::cuda
