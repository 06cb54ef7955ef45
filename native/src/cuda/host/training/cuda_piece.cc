#include "cuda/host/training/cuda_piece.h"

namespace longhaul::cuda {

void CudaPiece::linear_backward(Part, const DeviceLinear& linear, Matrix<const float> dy, Matrix<const float> x, const float* down,
                                float* dx) {
  const size_t width = size_t(linear.adapter_width());
  float* d_down = scratch_.adapter_down.room(size_t(rows.count) * width);
  apply_backward(linear, {dy.data, dy.ld}, dx, rows.count, d_down, stream_);
  for (const RowRange& piece : pieces_) {
    const size_t first = size_t(piece.first);
    for (const GradientProduct& product : gradient_products(linear, {dy.data + first * dy.ld, dy.ld}, {x.data + first * x.ld, x.ld},
                                                            down + first * width, d_down + first * width)) {
      add_gradient(product, gradients_, piece.count, stream_);
      check_.add(product, piece.count);
    }
  }
}

void CudaPiece::norm_backward(const ParameterRange& norm, const float* x, const float* inverse, const float* dy, float* dx) {
  const int width = model_.architecture().hidden_size;
  for (const RowRange& piece : pieces_) {
    const size_t at = size_t(piece.first) * size_t(width);
    rms_norm_backward({x + at, model_.at(norm), inverse + piece.first, dy + at, dx + at, gradient(norm), blocks(norm, piece), piece.count,
                       width},
                      stream_);
  }
}

void CudaPiece::rotate_backward(Matrix<float> dx, const ParameterRange& norm, const int32_t* positions, Matrix<const float> saved,
                                Matrix<const float> inverse, int heads) {
  for (const RowRange& piece : pieces_) {
    const size_t first = size_t(piece.first);
    head_norm_rope_backward({model_.heads(dx.data + first * dx.ld, norm, positions + first, piece.count, heads),
                             norm.empty() ? nullptr : saved.data + first * saved.ld, saved.ld,
                             norm.empty() ? nullptr : inverse.data + first * inverse.ld, inverse.ld, gradient(norm), blocks(norm, piece)},
                            stream_);
  }
}

void CudaPiece::bias_backward(const ParameterRange& bias, Matrix<const float> dy) {
  for (const RowRange& piece : pieces_)
    column_sums({dy.data + size_t(piece.first) * dy.ld, dy.ld}, piece.count, blocks(bias, piece), gradient(bias), bias.columns, stream_);
}

}  // namespace longhaul::cuda
