#include "cuda/kernels/head.h"

#include "cuda/kernels/arithmetic.cuh"
#include "cuda/kernels/elements.cuh"

namespace longhaul::cuda {

namespace {

/// A block of threads takes a row; each half-warp takes blocks of 64 tokens.
constexpr int head_threads = 256, half_warps = head_threads / lanes, token_block = 64;

DEVICE int token_blocks(int vocab) { return (vocab + token_block - 1) / token_block; }

/// Shared memory for one sum a block of tokens, in bytes.
size_t sums_bytes(int vocab) { return sizeof(float) * size_t((vocab + token_block - 1) / token_block); }

/// log p of a token
DEVICE float log_probability(float logit, const ops::RowNormalizer& by, float inverse_temperature) {
  return (logit - by.max) * inverse_temperature - by.log_sum;
}

/// The greatest logit as the CPU finds it: each of 16 lanes goes through the row in order, starting again after a NaN; then their tree.
/// Each half-warp goes through a part of the row.
template <int Fault>
DEVICE float row_maximum(const float* z, int vocab) {
  SHARED(float, greatest_of, [half_warps][lanes]);
  SHARED(int, nan_in, [half_warps][lanes]);
  const int lane = threadIdx.x % lanes, part = threadIdx.x / lanes;
  const int steps = (vocab + lanes - 1) / lanes, part_steps = (steps + half_warps - 1) / half_warps;
  float greatest = -infinity();
  int nan_seen = 0;
  for (int step = part * part_steps; step < (part + 1) * part_steps && step < steps; ++step) {
    const int i = step * lanes + lane;
    const float logit = i < vocab ? z[i] : -infinity();
    nan_seen |= logit != logit;
    greatest = greater(greatest, logit);
  }
  greatest_of[part][lane] = greatest;
  nan_in[part][lane] = nan_seen;
  if (Fault != 1) __syncthreads();
  greatest = -infinity();
  for (int p = 0; p < half_warps && p * part_steps < steps; ++p)
    greatest = nan_in[p][lane] ? greatest_of[p][lane] : greater(greatest, greatest_of[p][lane]);
  return maximum_of_lanes(greatest);
}

/// sums[b] = value(i, so far) along each lane of block b of tokens, then the lanes' tree. All threads call it; a barrier must follow.
template <class Value>
DEVICE void sum_token_blocks(int vocab, float* sums, Value value) {
  const int lane = threadIdx.x % lanes, blocks = token_blocks(vocab);
  for (int first = 0; first < blocks; first += half_warps) {
    const int block = first + int(threadIdx.x) / lanes, end = (block + 1) * token_block;
    float total = 0.0f;
    for (int i = block * token_block + lane; i < end && i < vocab; i += lanes) total = value(i, total);
    total = sum16(total);
    if (block < blocks && lane == 0) sums[block] = total;
  }
}

/// exp((z − max) · inverse_temperature)
DEVICE float weight_of(float logit, float greatest, float inverse_temperature) {
  return exponential((logit - greatest) * inverse_temperature);
}

/// Σ of the row's weights, block by block in order; `sums` gets each block's sum.
struct RowSum {
  float greatest, total;
};

template <int Fault>
DEVICE RowSum sum_row(const float* z, int vocab, float inverse_temperature, float* sums) {
  const float greatest = row_maximum<Fault>(z, vocab);
  sum_token_blocks(vocab, sums, [&](int i, float total) { return total + weight_of(z[i], greatest, inverse_temperature); });
  if (Fault != 2) __syncthreads();
  float total = 0.0f;
  for (int block = 0; block < token_blocks(vocab); ++block) total += sums[block];
  return {greatest, total};
}

template <int Fault>
__global__ void __launch_bounds__(head_threads) normalize_kernel(NormalizeRows a) {
  DYNAMIC_SHARED(shared);
  const size_t row = blockIdx.x;
  const float* z = a.logits + row * a.vocab;
  const RowSum sum = sum_row<Fault>(z, a.vocab, a.inverse_temperature, (float*)shared);
  if (threadIdx.x != 0) return;
  const ops::RowNormalizer normalizer{sum.greatest, logarithm(sum.total)};
  a.normalizers[row] = normalizer;
  if (a.tokens) a.logprobs[row] = log_probability(z[a.tokens[row]], normalizer, a.inverse_temperature);
}

template <int Fault>
__global__ void __launch_bounds__(head_threads) entropy_kernel(RowEntropies a) {
  DYNAMIC_SHARED(shared);
  float* sums = (float*)shared;
  const size_t row = blockIdx.x;
  const float* z = a.logits + row * a.vocab;
  const ops::RowNormalizer normalizer = a.normalizers[row];
  sum_token_blocks(a.vocab, sums, [&](int i, float total) {
    const float log_p = log_probability(z[i], normalizer, a.inverse_temperature);
    return __fmaf_rn(exponential(log_p), log_p, total);
  });
  if (Fault != 1) __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0.0f;
  for (int block = 0; block < token_blocks(a.vocab); ++block) total -= sums[block];
  a.entropies[row] = total;
}

DEVICE bool finite(float x) { return x - x == 0.0f; }

/// The first token at which the sum of weights exceeds the target; the walk uses the partial sums that the total is made of.
DEVICE int first_token_above(double target, const float* z, int vocab, const RowSum& sum, const float* sums, float inverse_temperature) {
  const int blocks = token_blocks(vocab);
  float before = 0.0f;
  int block = 0;
  while (block + 1 < blocks && !(double(before + sums[block]) > target)) before += sums[block++];
  const int begin = block * token_block, end = begin + token_block < vocab ? begin + token_block : vocab;
  for (int i = begin; i < end; ++i) {
    before += weight_of(z[i], sum.greatest, inverse_temperature);
    if (double(before) > target) return i;
  }
  // Rounding left the last partial sum below the target: the likeliest token of the block.
  int best = begin;
  for (int i = begin + 1; i < end; ++i)
    if (z[i] > z[best]) best = i;
  return best;
}

template <int Fault>
__global__ void __launch_bounds__(head_threads) draw_kernel(DrawRows a) {
  DYNAMIC_SHARED(shared);
  float* sums = (float*)shared;
  const size_t row = blockIdx.x;
  const float* z = a.logits + row * a.vocab;
  const RowDraw draw = a.draws[row];
  const RowSum sum = sum_row<Fault>(z, a.vocab, draw.inverse_temperature, sums);
  if (threadIdx.x != 0) return;
  if (!finite(sum.total) || !finite(sum.greatest)) {
    a.drawn[row] = {-1, __int_as_float(0x7FC00000)};
    return;
  }
  // The middle of the cell of width 2⁻²⁴ that `uniform` stands for.
  const double target = (double(draw.uniform) + 0x1p-25) * double(sum.total);
  const int token = first_token_above(target, z, a.vocab, sum, sums, draw.inverse_temperature);
  a.drawn[row] = {token, log_probability(z[token], {sum.greatest, logarithm(sum.total)}, draw.inverse_temperature)};
}

__global__ void __launch_bounds__(element_threads) gradient_kernel(SoftmaxGradient a) {
  const Place place = own_place();
  if (place.column >= a.vocab) return;
  float* z = a.logits + place.row * a.vocab + place.column;
  const float log_p = log_probability(*z, a.normalizers[place.row], a.inverse_temperature), p = exponential(log_p),
              scale = a.scales[place.row];
  const float factor = a.entropies ? __fmaf_rn(a.entropy_scales[place.row], log_p + a.entropies[place.row], scale) : scale;
  *z = place.column == a.tokens[place.row] ? factor * p - scale : factor * p;
}

template <class Args>
void launch_rows(void (*kernel)(Args), const Args& args, Stream stream) {
  if (args.rows > 0) launch(kernel, dim3(unsigned(args.rows)), dim3(head_threads), sums_bytes(args.vocab), stream, args);
}

}  // namespace

void normalize_rows(const NormalizeRows& args, Stream stream) { launch_rows(normalize_kernel<0>, args, stream); }

void row_entropies(const RowEntropies& args, Stream stream) { launch_rows(entropy_kernel<0>, args, stream); }

void draw_rows(const DrawRows& args, Stream stream) { launch_rows(draw_kernel<0>, args, stream); }

void softmax_gradient(const SoftmaxGradient& args, Stream stream) { launch_places(gradient_kernel, args.rows, args.vocab, stream, args); }

namespace testing {

void normalize_rows(const NormalizeRows& args, Stream stream, [[maybe_unused]] int fault) {
#ifndef __CUDACC__  // A GPU need not show that a barrier is missing.
  if (fault > 0) return launch_rows(fault == 1 ? normalize_kernel<1> : normalize_kernel<2>, args, stream);
#endif
  launch_rows(normalize_kernel<0>, args, stream);
}

void row_entropies(const RowEntropies& args, Stream stream, [[maybe_unused]] int fault) {
#ifndef __CUDACC__  // A GPU need not show that a barrier is missing.
  if (fault > 0) return launch_rows(entropy_kernel<1>, args, stream);
#endif
  launch_rows(entropy_kernel<0>, args, stream);
}

void draw_rows(const DrawRows& args, Stream stream, [[maybe_unused]] int fault) {
#ifndef __CUDACC__  // A GPU need not show that a barrier is missing.
  if (fault > 0) return launch_rows(fault == 1 ? draw_kernel<1> : draw_kernel<2>, args, stream);
#endif
  launch_rows(draw_kernel<0>, args, stream);
}

}  // namespace testing

}  // namespace longhaul::cuda
