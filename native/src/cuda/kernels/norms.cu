#include "cuda/kernels/norms.h"

#include "cuda/kernels/arithmetic.cuh"
#include "cuda/kernels/elements.cuh"

namespace longhaul::cuda {

namespace {

/// Half a warp takes a row, or a head of a row.
constexpr int row_threads = 256, rows_of_block = row_threads / lanes;

dim3 row_grid(size_t rows) { return dim3(unsigned((rows + rows_of_block - 1) / rows_of_block)); }

/// This half-warp's row; may be past the last.
DEVICE size_t own_row() { return size_t(blockIdx.x) * rows_of_block + threadIdx.x / lanes; }

/// Places [lane, lane + 16, …] of a row are this thread's; a half-warp without a row has none.
DEVICE int own_width(bool there, int width) { return there ? width : 0; }

/// 1 / √(mean(x²) + eps). All threads of the warp call it.
DEVICE float inverse_of(const float* x, float eps, int width, bool there) {
  float squares = 0.0f;
  for (int i = threadIdx.x % lanes; i < own_width(there, width); i += lanes) squares = __fmaf_rn(x[i], x[i], squares);
  return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum16(squares), float(width)) + eps));
}

__global__ void __launch_bounds__(row_threads) rms_norm_kernel(RmsNorm a) {
  const size_t row = own_row(), at = row * a.width;
  const bool there = row < size_t(a.rows);
  const int lane = threadIdx.x % lanes;
  const float inverse = inverse_of(a.x + at, a.eps, a.width, there);
  for (int i = lane; i < own_width(there, a.width); i += lanes) a.y[at + i] = a.x[at + i] * inverse * a.weight[i];
  if (there && lane == 0 && a.inverse_rms) a.inverse_rms[row] = inverse;
}

/// dx (+)= r·w·dy − x·r³·mean(w·dy·x); dy and dx may be the same row. All threads of the warp call it.
template <bool Accumulate>
DEVICE void norm_row_backward(const float* x, const float* weight, float inverse, const float* dy, float* dx, int width, bool there) {
  const int lane = threadIdx.x % lanes, end = own_width(there, width);
  float projection = 0.0f;
  for (int i = lane; i < end; i += lanes) projection = __fmaf_rn(dy[i] * weight[i], x[i], projection);
  const float pull = __fdiv_rn(sum16(projection) * inverse * inverse * inverse, float(width));
  for (int i = lane; i < end; i += lanes) {
    const float direct = dy[i] * weight[i] * inverse - x[i] * pull;
    dx[i] = Accumulate ? dx[i] + direct : direct;
  }
}

__global__ void __launch_bounds__(row_threads) rms_norm_backward_kernel(RmsNormBackward a) {
  const size_t row = own_row(), at = row * a.width;
  const bool there = row < size_t(a.rows);
  norm_row_backward<true>(a.x + at, a.weight, there ? a.inverse_rms[row] : 0.0f, a.dy + at, a.dx + at, a.width, there);
}

/// Normed vectors and the gradients of their norms: `count` vectors of [width] in each row.
struct NormedRows {
  const float* x;
  size_t ld_x;
  const float* inverse;  // [rows, ld_inverse]
  size_t ld_inverse;
  const float* dy;
  size_t ld_dy;
  int rows, count, width;
};

/// blocks[⌈rows / 64⌉, width]: the weight's gradient summed over a block's rows in order, and over each row's vectors in order.
__global__ void __launch_bounds__(element_threads) weight_blocks_kernel(NormedRows a, float* blocks) {
  const Place place = own_place();
  if (place.column >= a.width) return;
  const int first = int(place.row) * sum_block_rows, last = first + sum_block_rows < a.rows ? first + sum_block_rows : a.rows;
  float total = 0.0f;
  for (size_t row = first; row < size_t(last); ++row)
    for (int v = 0; v < a.count; ++v) {
      const size_t at = size_t(v) * a.width + place.column;
      total = __fmaf_rn(a.dy[row * a.ld_dy + at], a.x[row * a.ld_x + at] * a.inverse[row * a.ld_inverse + v], total);
    }
  blocks[place.row * a.width + place.column] = total;
}

void add_weight_gradient(const NormedRows& rows, float* blocks, float* d_weight, Stream stream) {
  launch_places(weight_blocks_kernel, sum_blocks(rows.rows), rows.width, stream, rows, blocks);
  add_blocks(blocks, sum_blocks(rows.rows), d_weight, rows.width, stream);
}

/// A head of a row. `there` is false past the last head; the pointers are then not valid.
struct OwnHead {
  size_t row;
  int head;
  bool there;
};

DEVICE OwnHead own_head(const Heads& heads) {
  const size_t item = own_row();
  return {item / unsigned(heads.heads), int(item % unsigned(heads.heads)), item < size_t(heads.rows) * heads.heads};
}

/// Rotates the pairs (i, i + head_dim / 2) by the angle of the row's position; direction −1 is the transpose.
DEVICE void rotate(float* x, const Heads& heads, size_t row, float direction) {
  const int half = heads.head_dim / 2;
  const float* cos = heads.cos + size_t(heads.positions[row]) * half;
  const float* sin = heads.sin + size_t(heads.positions[row]) * half;
  for (int i = threadIdx.x % lanes; i < half; i += lanes) {
    const float c = cos[i], s = sin[i] * direction, a = x[i], b = x[half + i];
    x[i] = a * c - b * s;
    x[half + i] = b * c + a * s;
  }
}

template <int Fault>
__global__ void __launch_bounds__(row_threads) head_norm_rope_kernel(HeadNormRope a) {
  const OwnHead own = own_head(a.heads);
  const int lane = threadIdx.x % lanes, width = a.heads.head_dim, end = own_width(own.there, width);
  const size_t at = size_t(own.head) * width;
  float* head = a.heads.x + own.row * a.heads.ld + at;
  if (a.saved)
    for (int i = lane; i < end; i += lanes) a.saved[own.row * a.ld_saved + at + i] = head[i];
  if (a.heads.weight) {
    const float inverse = inverse_of(head, a.eps, width, own.there);
    for (int i = lane; i < end; i += lanes) head[i] = head[i] * inverse * a.heads.weight[i];
    if (own.there && lane == 0 && a.inverse_rms) a.inverse_rms[own.row * a.ld_inverse + own.head] = inverse;
  }
  // If half a head is not a multiple of 16, a lane rotates values that another lane normed.
  if (Fault != 1) __syncwarp();
  if (own.there) rotate(head, a.heads, own.row, 1.0f);
}

__global__ void __launch_bounds__(row_threads) rotate_back_kernel(Heads heads) {
  const OwnHead own = own_head(heads);
  if (own.there) rotate(heads.x + own.row * heads.ld + size_t(own.head) * heads.head_dim, heads, own.row, -1.0f);
}

__global__ void __launch_bounds__(row_threads) head_norm_backward_kernel(HeadNormRopeBackward a) {
  const OwnHead own = own_head(a.heads);
  const size_t at = size_t(own.head) * a.heads.head_dim;
  float* head = a.heads.x + own.row * a.heads.ld + at;
  norm_row_backward<false>(a.saved + own.row * a.ld_saved + at, a.heads.weight,
                           own.there ? a.inverse_rms[own.row * a.ld_inverse + own.head] : 0.0f, head, head, a.heads.head_dim, own.there);
}

template <int Fault>
void launch_head_norm_rope(const HeadNormRope& args, Stream stream) {
  const size_t count = size_t(args.heads.rows) * args.heads.heads;
  if (count > 0) launch(head_norm_rope_kernel<Fault>, row_grid(count), dim3(row_threads), 0, stream, args);
}

}  // namespace

void rms_norm(const RmsNorm& args, Stream stream) {
  if (args.rows > 0) launch(rms_norm_kernel, row_grid(size_t(args.rows)), dim3(row_threads), 0, stream, args);
}

void rms_norm_backward(const RmsNormBackward& args, Stream stream) {
  if (args.rows <= 0) return;
  const size_t width = size_t(args.width);
  if (args.d_weight)
    add_weight_gradient({args.x, width, args.inverse_rms, 1, args.dy, width, args.rows, 1, args.width}, args.blocks, args.d_weight, stream);
  launch(rms_norm_backward_kernel, row_grid(size_t(args.rows)), dim3(row_threads), 0, stream, args);
}

void head_norm_rope(const HeadNormRope& args, Stream stream) { launch_head_norm_rope<0>(args, stream); }

void head_norm_rope_backward(const HeadNormRopeBackward& args, Stream stream) {
  const Heads& heads = args.heads;
  const size_t count = size_t(heads.rows) * heads.heads;
  if (count == 0) return;
  launch(rotate_back_kernel, row_grid(count), dim3(row_threads), 0, stream, heads);
  if (!heads.weight) return;
  // The weight's gradient reads the gradient that the last kernel overwrites.
  if (args.d_weight)
    add_weight_gradient({args.saved, args.ld_saved, args.inverse_rms, args.ld_inverse, heads.x, heads.ld, heads.rows, heads.heads,
                         heads.head_dim},
                        args.blocks, args.d_weight, stream);
  launch(head_norm_backward_kernel, row_grid(count), dim3(row_threads), 0, stream, args);
}

namespace testing {

void head_norm_rope(const HeadNormRope& args, Stream stream, [[maybe_unused]] int fault) {
#ifndef __CUDACC__  // A GPU need not show that a barrier is missing.
  if (fault == 1) return launch_head_norm_rope<1>(args, stream);
#endif
  launch_head_norm_rope<0>(args, stream);
}

}  // namespace testing

}  // namespace longhaul::cuda
