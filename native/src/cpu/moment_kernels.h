// AdamW (Loshchilov & Hutter 2019) with moments in fp32 or, by blocks of 256, in 8 bits (after Dettmers et al. 2022).
//
// The 8-bit format: m = code · (max|m| / 127), code in ±127, rounded to nearest, ties to even; v = (code · (max√v / 255))², code in 0..255.
// A step works on decoded fp32 values; only the values stored for the next step are rounded.
//  - The code of √v is rounded up or down at random, so that its mean is right. One step moves v by 1 − β2, about a thousandth. Rounding
//    to the nearest code would lose such a move when v falls and keep it when v rises by much, so v would drift to several times its
//    value. The random choice is a hash of v's own bits and its place in the block: the same on every machine and in a repeated run.
//  - v > 0 never gets code 0. So the smallest stored v of a block is (max√v / 255)², which is at least the true v: no m that survived
//    rounding is divided by a v that rounding made zero. v = 0 with m ≠ 0 remains only where v underflowed (|g| < 10⁻²⁰); there m is
//    divided by ε alone, and |m| is at most as large as that |g|.
#pragma once

#include "cpu/vec16.h"
#include "ops/ops.h"

namespace longhaul::ops {
namespace {

constexpr int moment_block = 256;
constexpr float first_levels = 127.0f, second_levels = 255.0f;
// A block of smaller moments is stored as zero: 127 / max would overflow.
constexpr float least_first_scale = 0x1p-100f;

void adamw(const AdamStep& step, float* weights, float* first, float* second, const float* gradients, size_t n) {
  const Vec scale = broadcast(step.gradient_scale), beta1 = broadcast(step.beta1), beta2 = broadcast(step.beta2);
  const Vec rest1 = broadcast(step.one_minus_beta1), rest2 = broadcast(step.one_minus_beta2);
  const Vec correction1 = broadcast(step.correction1), correction2 = broadcast(step.correction2);
  const Vec rate = broadcast(-step.learning_rate), eps = broadcast(step.eps), decay = broadcast(step.weight_decay);
  for (size_t i = 0; i < n; i += lanes) {
    const Vec g = mul(load(gradients + i), scale);
    const Vec m = fma(beta1, load(first + i), mul(rest1, g));
    const Vec v = fma(beta2, load(second + i), mul(rest2, mul(g, g)));
    const Vec w = load(weights + i);
    const Vec direction = div(div(m, correction1), add(square_root(div(v, correction2)), eps));
    store(first + i, m);
    store(second + i, v);
    store(weights + i, fma(rate, fma(decay, w, direction), w));
  }
}

// One block; `count` is a multiple of 16.
inline void adamw_8bit_block(const AdamStep& step, float* weights, int8_t* first_codes, float& first_scale,
                             uint8_t* second_codes, float& second_scale, const float* gradients, int count,
                             const uint8_t* decayed) {
  const Vec scale = broadcast(step.gradient_scale), beta1 = broadcast(step.beta1), beta2 = broadcast(step.beta2);
  const Vec rest1 = broadcast(step.one_minus_beta1), rest2 = broadcast(step.one_minus_beta2);
  const Vec inverse_correction1 = broadcast(1.0f / step.correction1),
            inverse_root2 = broadcast(1.0f / __builtin_sqrtf(step.correction2));
  const Vec rate = broadcast(-step.learning_rate), eps = broadcast(step.eps);
  const Vec first_unit = broadcast(first_scale * (1.0f / first_levels)),
            second_unit = broadcast(second_scale * (1.0f / second_levels));
  alignas(64) float firsts[moment_block], roots[moment_block];
  Vec greatest_first = zeros(), greatest_root = zeros();
  for (int i = 0; i < count; i += lanes) {
    const Vec g = mul(load(gradients + i), scale);
    const Vec m = fma(beta1, mul(load_bytes(first_codes + i), first_unit), mul(rest1, g));
    const Vec old_root = mul(load_bytes(second_codes + i), second_unit);
    const Vec root = square_root(fma(beta2, mul(old_root, old_root), mul(rest2, mul(g, g))));
    const Vec w = load(weights + i);
    const Vec direction = div(mul(m, inverse_correction1), fma(root, inverse_root2, eps));
    const Vec decay = broadcast(!decayed || decayed[i / lanes] ? step.weight_decay : 0.0f);
    store(weights + i, fma(rate, fma(decay, w, direction), w));
    store(firsts + i, m);
    store(roots + i, root);
    greatest_first = max(greatest_first, absolute(m));
    greatest_root = max(greatest_root, root);
  }

  const float first_top = maximum(greatest_first), second_top = maximum(greatest_root);
  first_scale = first_top < least_first_scale ? 0.0f : first_top;
  second_scale = second_top;
  const Vec to_first = broadcast(first_scale > 0.0f ? first_levels / first_scale : 0.0f),
            to_second = broadcast(second_scale > 0.0f ? second_levels / second_scale : 0.0f);
  const Vec shift = broadcast(integer_shift), half = broadcast(0.5f), one = broadcast(1.0f), most = broadcast(second_levels);
  for (int i = 0; i < count; i += lanes) {
    store_low_bytes(first_codes + i, fma(load(firsts + i), to_first, shift));
    const Vec root = load(roots + i);
    const Vec code = fma(root, to_second, sub(hashed_fraction(root, uint32_t(i)), half));
    store_low_bytes(second_codes + i, add(max(where_positive(root, one), min(most, code)), shift));
  }
}

void adamw_8bit(const AdamStep& step, float* weights, int8_t* first_codes, float* first_scales, uint8_t* second_codes,
                float* second_scales, const float* gradients, size_t n, const uint8_t* decayed) {
  for (size_t begin = 0, block = 0; begin < n; begin += moment_block, ++block) {
    const int count = n - begin < moment_block ? int(n - begin) : moment_block;
    const uint8_t* block_decayed = decayed ? decayed + begin / lanes : nullptr;
    if (count % lanes == 0) {
      adamw_8bit_block(step, weights + begin, first_codes + begin, first_scales[block], second_codes + begin,
                       second_scales[block], gradients + begin, count, block_decayed);
      continue;
    }
    // The last, shorter block is padded with parameters that are 0 and stay 0.
    float some_weights[moment_block] = {}, some_gradients[moment_block] = {};
    int8_t some_first[moment_block] = {};
    uint8_t some_second[moment_block] = {};
    __builtin_memcpy(some_weights, weights + begin, size_t(count) * sizeof(float));
    __builtin_memcpy(some_gradients, gradients + begin, size_t(count) * sizeof(float));
    __builtin_memcpy(some_first, first_codes + begin, size_t(count));
    __builtin_memcpy(some_second, second_codes + begin, size_t(count));
    adamw_8bit_block(step, some_weights, some_first, first_scales[block], some_second, second_scales[block],
                     some_gradients, (count + lanes - 1) / lanes * lanes, block_decayed);
    __builtin_memcpy(weights + begin, some_weights, size_t(count) * sizeof(float));
    __builtin_memcpy(first_codes + begin, some_first, size_t(count));
    __builtin_memcpy(second_codes + begin, some_second, size_t(count));
  }
}

}  // namespace
}  // namespace longhaul::ops
