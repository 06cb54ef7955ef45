#include "cuda/host/training/cuda_piece.h"

#include "cuda/host/cuda_device.h"

namespace longhaul::cuda {

float* CudaPiece::d_gate_up() {
  return device_.scratch().d_gate_up.room(size_t(rows.count) * 2 * size_t(device_.architecture().intermediate_size));
}

float* CudaPiece::gradient(const ParameterRange& range) const {
  return range.empty() || device_.model().frozen() ? nullptr : gradients_ + range.offset;
}

float* CudaPiece::blocks(const ParameterRange& range, RowRange piece) const {
  return gradient(range) ? device_.scratch().blocks.room(size_t(sum_blocks(piece.count)) * size_t(range.columns)) : nullptr;
}

void CudaPiece::linear_backward(Part, const DeviceLinear& linear, Matrix<const float> dy, Matrix<const float> x, const float* down,
                                float* dx) {
  const size_t width = size_t(linear.adapter_width());
  float* d_down = device_.scratch().adapter_down.room(size_t(rows.count) * width);
  apply_backward(device_, linear, dy, dx, rows.count, d_down);
  for (const PieceRange& piece : pieces_) {
    const size_t first = size_t(piece.first);
    const auto add = [&](const ParameterRange& range, Matrix<const float> left, int part) {
      ConstRows right{x.data + first * x.ld, x.ld};
      if (part >= 0) right = {down + first * width + size_t(part) * size_t(range.columns), width};
      const GradientProduct product{range.offset, range.rows, range.columns, {left.data, left.ld}, right};
      add_gradient(product, gradients_, piece.count, device_.stream());
      device_.check().add(product, piece.count);
    };
    each_gradient<float>(linear, {dy.data + first * dy.ld, dy.ld}, d_down + first * width, add);
  }
}

void CudaPiece::norm_backward(const ParameterRange& norm, const float* x, const float* inverse, const float* dy, float* dx) {
  const int width = device_.model().architecture().hidden_size;
  for (const PieceRange& piece : pieces_) {
    const size_t at = size_t(piece.first) * size_t(width);
    rms_norm_backward({x + at, device_.model().at(norm), inverse + piece.first, dy + at, dx + at, gradient(norm), blocks(norm, piece), piece.count,
                       width},
                      device_.stream());
  }
}

void CudaPiece::rotate_backward(Matrix<float> dx, const ParameterRange& norm, const int32_t* positions, Matrix<const float> saved,
                                Matrix<const float> inverse, int heads) {
  for (const PieceRange& piece : pieces_) {
    const size_t first = size_t(piece.first);
    head_norm_rope_backward({device_.model().heads(dx.data + first * dx.ld, norm, positions + first, piece.count, heads),
                             norm.empty() ? nullptr : saved.data + first * saved.ld, saved.ld,
                             norm.empty() ? nullptr : inverse.data + first * inverse.ld, inverse.ld, gradient(norm), blocks(norm, piece)},
                            device_.stream());
  }
}

void CudaPiece::bias_backward(const ParameterRange& bias, Matrix<const float> dy) {
  for (const PieceRange& piece : pieces_)
    column_sums({dy.data + size_t(piece.first) * dy.ld, dy.ld}, piece.count, blocks(bias, piece), gradient(bias), bias.columns,
                device_.stream());
}

}  // namespace longhaul::cuda
