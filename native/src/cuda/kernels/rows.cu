#include "cuda/kernels/rows.h"

#include "cuda/kernels/arithmetic.cuh"
#include "cuda/kernels/elements.cuh"

namespace longhaul::cuda {

namespace {

__global__ void __launch_bounds__(element_threads) gather_kernel(ConstRows from, const int32_t* indices, Rows to, int width) {
  const Place place = own_place();
  if (place.column >= width) return;
  const size_t row = indices ? size_t(indices[place.row]) : place.row;
  to.data[place.row * to.ld + place.column] = from.data[row * from.ld + place.column];
}

__global__ void __launch_bounds__(element_threads) scatter_kernel(ConstRows from, const int32_t* indices, Rows to, int width) {
  const Place place = own_place();
  if (place.column >= width) return;
  to.data[size_t(indices[place.row]) * to.ld + place.column] = from.data[place.row * from.ld + place.column];
}

/// A list's sum starts with its first row or, if Accumulate, with the target.
template <bool Accumulate>
__global__ void __launch_bounds__(element_threads) sum_lists_kernel(ConstRows from, RowLists lists, const int32_t* targets, Rows to,
                                                                    int width) {
  const Place place = own_place();
  if (place.column >= width) return;
  const int end = lists.starts[place.row + 1];
  int at = lists.starts[place.row];
  const auto next = [&] {
    const size_t row = size_t(lists.indices ? lists.indices[at] : at);
    ++at;
    return from.data[row * from.ld + place.column];
  };
  float* target = to.data + (targets ? size_t(targets[place.row]) : place.row) * to.ld + place.column;
  float total = Accumulate ? *target : next();
  while (at < end) total += next();
  *target = total;
}

__global__ void __launch_bounds__(element_threads) block_sums_kernel(ConstRows dy, int rows, float* blocks, int width) {
  const Place place = own_place();
  if (place.column >= width) return;
  const int first = int(place.row) * sum_block_rows, last = first + sum_block_rows < rows ? first + sum_block_rows : rows;
  float total = 0.0f;
  for (int row = first; row < last; ++row) total += dy.data[size_t(row) * dy.ld + place.column];
  blocks[place.row * width + place.column] = total;
}

__global__ void __launch_bounds__(element_threads) add_blocks_kernel(const float* blocks, int count, float* target, int width) {
  const size_t column = own_element();
  if (column >= size_t(width)) return;
  float total = target[column];
  for (int block = count - 1; block >= 0; --block) total += blocks[size_t(block) * width + column];
  target[column] = total;
}

__global__ void __launch_bounds__(element_threads) add_bias_kernel(Rows c, const float* bias, int width) {
  const Place place = own_place();
  if (place.column >= width) return;
  c.data[place.row * c.ld + place.column] += bias[place.column];
}

__global__ void __launch_bounds__(element_threads) scale_kernel(Rows x, float factor, int width) {
  const Place place = own_place();
  if (place.column >= width) return;
  x.data[place.row * x.ld + place.column] *= factor;
}

__global__ void __launch_bounds__(element_threads) swiglu_kernel(const float* gate_up, float* y, int f) {
  const Place place = own_place();
  if (place.column >= f) return;
  const float* at = gate_up + place.row * 2 * f + place.column;
  y[place.row * f + place.column] = at[0] * sigmoid(at[0]) * at[f];
}

__global__ void __launch_bounds__(element_threads) swiglu_backward_kernel(const float* gate_up, const float* dy, float* d_gate_up, int f) {
  const Place place = own_place();
  if (place.column >= f) return;
  const size_t at = place.row * 2 * f + place.column;
  const float gate = gate_up[at], up = gate_up[at + f], s = sigmoid(gate), ds = dy[place.row * f + place.column] * s;
  d_gate_up[at] = ds * up * __fmaf_rn(gate, 1.0f - s, 1.0f);
  d_gate_up[at + f] = ds * gate;
}

}  // namespace

void gather_rows(ConstRows from, const int32_t* indices, Rows to, int count, int width, Stream stream) {
  launch_places(gather_kernel, count, width, stream, from, indices, to, width);
}

void scatter_rows(ConstRows from, const int32_t* indices, Rows to, int count, int width, Stream stream) {
  launch_places(scatter_kernel, count, width, stream, from, indices, to, width);
}

void sum_rows(ConstRows from, const RowLists& lists, Rows to, int width, Stream stream) {
  const int32_t* in_order = nullptr;
  launch_places(sum_lists_kernel<false>, lists.count, width, stream, from, lists, in_order, to, width);
}

void add_rows(ConstRows from, const RowLists& lists, const int32_t* targets, Rows to, int width, Stream stream) {
  launch_places(sum_lists_kernel<true>, lists.count, width, stream, from, lists, targets, to, width);
}

void add_blocks(const float* blocks, int count, float* target, int width, Stream stream) {
  launch_elements(add_blocks_kernel, size_t(width), stream, blocks, count, target, width);
}

void column_sums(ConstRows dy, int rows, float* blocks, float* target, int width, Stream stream) {
  launch_places(block_sums_kernel, sum_blocks(rows), width, stream, dy, rows, blocks, width);
  add_blocks(blocks, sum_blocks(rows), target, width, stream);
}

void add_bias(Rows c, const float* bias, int rows, int width, Stream stream) {
  launch_places(add_bias_kernel, rows, width, stream, c, bias, width);
}

void scale_rows(Rows x, float factor, int rows, int width, Stream stream) {
  launch_places(scale_kernel, rows, width, stream, x, factor, width);
}

void swiglu(const float* gate_up, float* y, int rows, int f, Stream stream) {
  launch_places(swiglu_kernel, rows, f, stream, gate_up, y, f);
}

void swiglu_backward(const float* gate_up, const float* dy, float* d_gate_up, int rows, int f, Stream stream) {
  launch_places(swiglu_backward_kernel, rows, f, stream, gate_up, dy, d_gate_up, f);
}

}  // namespace longhaul::cuda
