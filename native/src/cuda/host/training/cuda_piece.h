// Backward layers on the device: an operation is launched over all rows of a pass, gradients over pieces of 512 rows from the last to the
// first.
#pragma once

#include <span>

#include "cuda/host/device_model.h"
#include "pass/linear.h"
#include "pass/plan/pass_plan.h"

namespace longhaul::cuda {

class CudaDevice;

/// All rows of a pass (in the last layer: its outputs), and their pieces.
class CudaPiece {
 public:
  CudaPiece(std::span<const PieceRange> pieces, CudaDevice& device, float* gradients)
      : rows{0, pieces.front().first + pieces.front().count}, pieces_(pieces), device_(device), gradients_(gradients) {}

  const RowRange rows;

  /// Gradients are added before these rows change.
  const float* lasting(const float* d_output) const { return d_output; }
  float* d_gate_up();

  void linear_backward(Part part, const DeviceLinear& linear, Matrix<const float> dy, Matrix<const float> x, const float* down, float* dx);
  /// dx += …
  void norm_backward(const ParameterRange& norm, const float* x, const float* inverse, const float* dy, float* dx);
  /// In place; only the rotation if the norm's range is empty.
  void rotate_backward(Matrix<float> dx, const ParameterRange& norm, const int32_t* positions, Matrix<const float> saved,
                       Matrix<const float> inverse, int heads);
  void bias_backward(const ParameterRange& bias, Matrix<const float> dy);

 private:
  /// Where a gradient is added, and the memory of the sums of blocks that it is added up from; null if it is not trained.
  float* gradient(const ParameterRange& range) const;
  float* blocks(const ParameterRange& range, RowRange piece) const;

  std::span<const PieceRange> pieces_;
  CudaDevice& device_;
  float* gradients_;
};

}  // namespace longhaul::cuda
