// The CPU's functions and sums for kernels, with the CPU's bits: the same IEEE operations in the same order as `cpu/vec16.h`.
// (A NaN stays a NaN, but which one differs between processors.)
#pragma once

#include "cuda/device/device.h"

namespace longhaul::cuda {

constexpr unsigned full_warp = 0xFFFFFFFFu;

/// eˣ as `ops::exponential`: x is clamped to [−87, 88], NaN stays NaN.
DEVICE float exponential(float x) {
  x = -87.0f > x ? -87.0f : x;
  x = 88.0f < x ? 88.0f : x;
  // Adding 1.5·2²³ rounds to the nearest integer n, ties to even, and leaves n in the low bits.
  const float integer_shift = 12582912.0f;
  const float shifted = __fmaf_rn(x, 1.44269504088896341f, integer_shift), n = shifted - integer_shift;
  float r = __fmaf_rn(n, -0.693359375f, x);
  r = __fmaf_rn(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = __fmaf_rn(p, r, 1.3981999507e-3f);
  p = __fmaf_rn(p, r, 8.3334519073e-3f);
  p = __fmaf_rn(p, r, 4.1665795894e-2f);
  p = __fmaf_rn(p, r, 1.6666665459e-1f);
  p = __fmaf_rn(p, r, 5.0000001201e-1f);
  const float power_of_two = __uint_as_float((__float_as_uint(shifted) + 127u) << 23);
  return __fmaf_rn(p, r * r, r + 1.0f) * power_of_two;
}

/// ln x as `ops::logarithm`, for normal x > 0; NaN and infinity are returned unchanged.
DEVICE float logarithm(float x) {
  if (!(x < __uint_as_float(0x7F800000u))) return x;
  const unsigned bits = __float_as_uint(x);
  int exponent = int(bits >> 23) - 126;
  float m = __uint_as_float((bits & 0x007FFFFFu) | 0x3F000000u);
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

/// Sum over each half of a warp, to all its lanes, by the tree of `ops::sum`: lanes i and i + 8, then + 4, + 2, + 1. (Each lane adds its
/// partner's value to its own; that is the same sum on both sides.)
DEVICE float sum16(float v) {
  v += __shfl_xor_sync(full_warp, v, 8);
  v += __shfl_xor_sync(full_warp, v, 4);
  v += __shfl_xor_sync(full_warp, v, 2);
  v += __shfl_xor_sync(full_warp, v, 1);
  return v;
}

/// Maximum over a warp, to all its lanes. With a NaN, or zeros of both signs, lanes may differ.
DEVICE float max32(float v) {
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(full_warp, v, step);
    v = v > other ? v : other;
  }
  return v;
}

}  // namespace longhaul::cuda
