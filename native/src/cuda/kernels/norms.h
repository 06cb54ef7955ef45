// RMS norms of rows and of heads, with rotary embedding, and their gradients: the bits of cpu/row_kernels.h. Widths are multiples of 16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/stream.h"
#include "cuda/kernels/rows.h"

namespace longhaul::cuda {

/// y[i] = x[i] · inverse_rms[i] · weight; x, y [rows, width]
struct RmsNorm {
  const float* x;
  const float* weight;
  float eps;
  float* y;
  float* inverse_rms;  // [rows], or null
  int rows, width;
};

void rms_norm(const RmsNorm& args, Stream stream);

/// dx += …; d_weight += … in blocks of 64 rows, the last block first. Call it for pieces as `column_sums` (rows.h).
struct RmsNormBackward {
  const float* x;
  const float* weight;
  const float* inverse_rms;  // [rows]
  const float* dy;
  float* dx;
  float* d_weight;  // [width], or null: not computed
  float* blocks;    // scratch [sum_blocks(rows), width], or null with d_weight
  int rows, width;
};

void rms_norm_backward(const RmsNormBackward& args, Stream stream);

/// The heads of some rows of queries or of keys, and the angles of their rotation.
struct Heads {
  float* x;  // [rows, ld]; in each row `heads` heads, one after another
  size_t ld;
  const float* weight;       // [head_dim], or null: rotation only
  const int32_t* positions;  // [rows]
  const float* cos;          // [positions, head_dim / 2]
  const float* sin;
  int rows, heads, head_dim;
};

/// In place: the norm of each head, then its rotation. `saved` [rows, ld_saved], the heads before the norm, and inverse_rms
/// [rows, ld_inverse] may be null.
struct HeadNormRope {
  Heads heads;
  float eps;
  float* saved;
  size_t ld_saved;
  float* inverse_rms;
  size_t ld_inverse;
};

void head_norm_rope(const HeadNormRope& args, Stream stream);

/// heads.x, the gradient of the result, becomes the gradient of the input. d_weight += … in blocks of 64 rows, the last block first.
struct HeadNormRopeBackward {
  Heads heads;
  const float* saved;  // null without weight, as inverse_rms
  size_t ld_saved;
  const float* inverse_rms;
  size_t ld_inverse;
  float* d_weight;  // [head_dim], or null: not computed
  float* blocks;    // scratch [sum_blocks(rows), head_dim], or null with d_weight
};

void head_norm_rope_backward(const HeadNormRopeBackward& args, Stream stream);

namespace testing {

/// `head_norm_rope` without the barrier between norm and rotation if `fault` is 1.
void head_norm_rope(const HeadNormRope& args, Stream stream, int fault);

}  // namespace testing

}  // namespace longhaul::cuda
