// The engine's own arithmetic on the device: the same operations in the same order as cpu/vec16.h, so the same bits. Sixteen threads (half
// a warp) are the sixteen lanes of a vector.
#pragma once

#include "cuda/device/device.h"

namespace longhaul::cuda {

constexpr unsigned full_mask = 0xFFFFFFFFu;
/// Lanes that a sum runs over; sixteen neighbouring threads hold one each.
constexpr int lanes = 16;
/// 1.5·2²³: adding it rounds to the nearest integer, ties to even, and leaves that integer in the low bits.
constexpr float integer_shift = 12582912.0f;

DEVICE float infinity() { return __int_as_float(0x7F800000); }

/// a > b ? a : b, so a NaN in b is kept.
DEVICE float greater(float a, float b) { return a > b ? a : b; }

/// 2ⁿ from n + 1.5·2²³
DEVICE float power_of_two(float shifted) { return __int_as_float(int((unsigned(__float_as_int(shifted)) + 127u) << 23)); }

/// eˣ; x is clamped to [−87, 88], NaN stays NaN.
DEVICE float exponential(float x) {
  x = greater(-87.0f, x);
  x = 88.0f < x ? 88.0f : x;
  const float shifted = __fmaf_rn(x, 1.44269504088896341f, integer_shift), n = shifted - integer_shift;
  float r = __fmaf_rn(n, -0.693359375f, x);
  r = __fmaf_rn(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = __fmaf_rn(p, r, 1.3981999507e-3f);
  p = __fmaf_rn(p, r, 8.3334519073e-3f);
  p = __fmaf_rn(p, r, 4.1665795894e-2f);
  p = __fmaf_rn(p, r, 1.6666665459e-1f);
  p = __fmaf_rn(p, r, 5.0000001201e-1f);
  return __fmaf_rn(p, r * r, r + 1.0f) * power_of_two(shifted);
}

/// ln x for normal x > 0; NaN and infinity are returned unchanged.
DEVICE float logarithm(float x) {
  if (!(x < infinity())) return x;
  const unsigned bits = unsigned(__float_as_int(x));
  int exponent = int(bits >> 23) - 126;
  float m = __int_as_float(int((bits & 0x007FFFFFu) | 0x3F000000u));
  if (m < 0.707106781186547524f) {
    exponent -= 1;
    m = m + m;
  }
  const float r = m - 1.0f, r2 = r * r, n = float(exponent);
  float p = 7.0376836292e-2f;
  p = __fmaf_rn(p, r, -1.1514610310e-1f);
  p = __fmaf_rn(p, r, 1.1676998740e-1f);
  p = __fmaf_rn(p, r, -1.2420140846e-1f);
  p = __fmaf_rn(p, r, 1.4249322787e-1f);
  p = __fmaf_rn(p, r, -1.6668057665e-1f);
  p = __fmaf_rn(p, r, 2.0000714765e-1f);
  p = __fmaf_rn(p, r, -2.4999993993e-1f);
  p = __fmaf_rn(p, r, 3.3333331174e-1f);
  float y = p * r * r2;
  y = __fmaf_rn(n, -2.12194440e-4f, y);
  y = __fmaf_rn(r2, -0.5f, y);
  return __fmaf_rn(n, 0.693359375f, r + y);
}

DEVICE float sigmoid(float x) { return __fdiv_rn(1.0f, 1.0f + exponential(0.0f - x)); }

/// The sum over the sixteen lanes of this half of the warp, in every lane: first lanes i and i + 8, then + 4, + 2, + 1. (Each lane adds the
/// same two values as its partner, and an addition commutes.) All threads of the warp call it.
DEVICE float sum_of_lanes(float v) {
  UNROLL
  for (int step = lanes / 2; step > 0; step /= 2) v += __shfl_xor_sync(full_mask, v, step);
  return v;
}

/// The maximum over the sixteen lanes, in every lane, by the same tree. The lower lane is always the first operand: that decides which of
/// −0 and +0, and whether a NaN, remains. All threads of the warp call it.
DEVICE float maximum_of_lanes(float v) {
  UNROLL
  for (int step = lanes / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(full_mask, v, step);
    v = (threadIdx.x & unsigned(step)) ? greater(other, v) : greater(v, other);
  }
  return v;
}

}  // namespace longhaul::cuda
