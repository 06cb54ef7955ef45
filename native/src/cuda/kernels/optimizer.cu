#include "cuda/kernels/optimizer.h"

#include "cuda/kernels/arithmetic.cuh"
#include "cuda/kernels/elements.cuh"

namespace longhaul::cuda {

namespace {

/// Constants of the 8-bit format; cpu/moment_kernels.h explains it.
constexpr int moment_block = 256;
constexpr float first_levels = 127.0f, second_levels = 255.0f, least_first_scale = 0x1p-100f;

__global__ void __launch_bounds__(element_threads) adamw_kernel(AdamW a) {
  const size_t i = own_element();
  if (i >= a.n) return;
  const ops::AdamStep& step = a.step;
  const float g = a.gradients[i] * step.gradient_scale, w = a.weights[i];
  const float m = __fmaf_rn(step.beta1, a.first[i], step.one_minus_beta1 * g);
  const float v = __fmaf_rn(step.beta2, a.second[i], step.one_minus_beta2 * (g * g));
  const float direction = __fdiv_rn(__fdiv_rn(m, step.correction1), __fsqrt_rn(__fdiv_rn(v, step.correction2)) + step.eps);
  a.first[i] = m;
  a.second[i] = v;
  a.weights[i] = __fmaf_rn(-step.learning_rate, __fmaf_rn(step.weight_decay, w, direction), w);
}

/// A fraction in [0, 1): a hash (lowbias32) of a value's bits and its place in the block.
DEVICE float hashed_fraction(float v, uint32_t place) {
  uint32_t h = uint32_t(__float_as_int(v)) ^ (place * 0x9E3779B9u);
  h = (h ^ (h >> 16)) * 0x7FEB352Du;
  h = (h ^ (h >> 15)) * 0x846CA68Bu;
  h ^= h >> 16;
  return __int_as_float(int((h >> 9) | 0x3F800000u)) - 1.0f;
}

/// The integer n modulo 256 from n + 1.5·2²³
DEVICE uint8_t low_byte(float shifted) { return uint8_t(__float_as_int(shifted) & 0xFF); }

/// The maximum of values[steps, 16] and 0: along each lane in order, then the lanes' tree. All threads of the warp call it.
DEVICE float block_maximum(const float (&values)[moment_block], int steps) {
  float greatest = 0.0f;
  for (int s = 0; s < steps; ++s) greatest = greater(greatest, values[s * lanes + threadIdx.x % lanes]);
  return maximum_of_lanes(greatest);
}

/// A block of threads takes a block of moments, a thread one parameter. Past the end, up to a multiple of 16, parameters and
/// gradients are 0.
template <int Fault>
__global__ void __launch_bounds__(moment_block) adamw_8bit_kernel(AdamW8Bit a) {
  SHARED(float, firsts, [moment_block]);
  SHARED(float, roots, [moment_block]);
  const size_t block = blockIdx.x, begin = block * moment_block;
  const int place = threadIdx.x, count = a.n - begin < size_t(moment_block) ? int(a.n - begin) : moment_block,
            steps = (count + lanes - 1) / lanes;
  const bool there = place < count;
  const size_t i = begin + place;
  const ops::AdamStep& step = a.step;

  const float first_unit = a.first_scales[block] * __fdiv_rn(1.0f, first_levels),
              second_unit = a.second_scales[block] * __fdiv_rn(1.0f, second_levels);
  const float g = (there ? a.gradients[i] : 0.0f) * step.gradient_scale;
  const float old_first = float(there ? int(a.first_codes[i]) : 0) * first_unit,
              old_root = float(there ? int(a.second_codes[i]) : 0) * second_unit;
  const float m = __fmaf_rn(step.beta1, old_first, step.one_minus_beta1 * g);
  const float root = __fsqrt_rn(__fmaf_rn(step.beta2, old_root * old_root, step.one_minus_beta2 * (g * g)));
  if (there) {
    const float w = a.weights[i], decay = !a.decayed || a.decayed[i / lanes] ? step.weight_decay : 0.0f;
    const float direction = __fdiv_rn(m * __fdiv_rn(1.0f, step.correction1),
                                      __fmaf_rn(root, __fdiv_rn(1.0f, __fsqrt_rn(step.correction2)), step.eps));
    a.weights[i] = __fmaf_rn(-step.learning_rate, __fmaf_rn(decay, w, direction), w);
  }
  firsts[place] = greater(m, 0.0f - m);
  roots[place] = root;
  // Also keeps the new scales from being written before every thread has read the old ones.
  if (Fault != 1) __syncthreads();

  const float first_top = block_maximum(firsts, steps), second_scale = block_maximum(roots, steps);
  const float first_scale = first_top < least_first_scale ? 0.0f : first_top;
  const float to_first = first_scale > 0.0f ? __fdiv_rn(first_levels, first_scale) : 0.0f,
              to_second = second_scale > 0.0f ? __fdiv_rn(second_levels, second_scale) : 0.0f;
  if (there) {
    const float code = __fmaf_rn(root, to_second, hashed_fraction(root, uint32_t(place)) - 0.5f);
    const float least = root > 0.0f ? 1.0f : 0.0f, most = second_levels < code ? second_levels : code;
    a.first_codes[i] = int8_t(low_byte(__fmaf_rn(m, to_first, integer_shift)));
    a.second_codes[i] = low_byte(greater(least, most) + integer_shift);
  }
  if (place == 0) {
    a.first_scales[block] = first_scale;
    a.second_scales[block] = second_scale;
  }
}

template <int Fault>
void launch_adamw_8bit(const AdamW8Bit& args, Stream stream) {
  const size_t blocks = (args.n + moment_block - 1) / moment_block;
  if (blocks > 0) launch(adamw_8bit_kernel<Fault>, dim3(unsigned(blocks)), dim3(moment_block), 0, stream, args);
}

/// Half a warp takes a block of values.
constexpr int square_threads = 256, squares_of_block = square_threads / lanes;

__global__ void __launch_bounds__(square_threads) squares_kernel(const float* x, size_t n, float* totals, size_t blocks) {
  const size_t block = size_t(blockIdx.x) * squares_of_block + threadIdx.x / lanes, begin = block * square_block,
               end = begin + square_block < n ? begin + square_block : n;
  float total = 0.0f;
  for (size_t i = begin + threadIdx.x % lanes; i < end; i += lanes) total = __fmaf_rn(x[i], x[i], total);
  total = sum16(total);
  if (block < blocks && threadIdx.x % lanes == 0) totals[block] = total;
}

}  // namespace

void adamw(const AdamW& args, Stream stream) { launch_elements(adamw_kernel, args.n, stream, args); }

void adamw_8bit(const AdamW8Bit& args, Stream stream) { launch_adamw_8bit<0>(args, stream); }

void squares(const float* x, size_t n, float* totals, Stream stream) {
  const size_t blocks = square_blocks(n);
  if (blocks == 0) return;
  launch(squares_kernel, dim3(unsigned((blocks + squares_of_block - 1) / squares_of_block)), dim3(square_threads), 0, stream, x, n, totals,
         blocks);
}

double add_squares(double total, const float* totals, size_t n) {
  constexpr size_t stretch = 4;  // blocks in 16,384 values
  for (size_t first = 0; first < square_blocks(n); first += stretch) {
    double sum = 0;
    for (size_t block = first; block < first + stretch && block < square_blocks(n); ++block) sum += double(totals[block]);
    total += sum;
  }
  return total;
}

namespace testing {

void adamw_8bit(const AdamW8Bit& args, Stream stream, [[maybe_unused]] int fault) {
#ifndef __CUDACC__  // A GPU need not show that a barrier is missing.
  if (fault == 1) return launch_adamw_8bit<1>(args, stream);
#endif
  launch_adamw_8bit<0>(args, stream);
}

}  // namespace testing

}  // namespace longhaul::cuda
