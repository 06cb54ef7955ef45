// What kernels need besides device/exact.h: sixteen neighbouring threads (half a warp) are the sixteen lanes of a vector of cpu/vec16.h.
#pragma once

#include "cuda/device/exact.h"

namespace longhaul::cuda {

/// Lanes that a sum runs over; sixteen neighbouring threads hold one each.
constexpr int lanes = 16;
/// 1.5·2²³: adding it rounds to the nearest integer, ties to even, and leaves that integer in the low bits.
constexpr float integer_shift = 12582912.0f;

DEVICE float infinity() { return __int_as_float(0x7F800000); }

/// a > b ? a : b, so a NaN in b is kept.
DEVICE float greater(float a, float b) { return a > b ? a : b; }

DEVICE float sigmoid(float x) { return __fdiv_rn(1.0f, 1.0f + exponential(0.0f - x)); }

/// The maximum over the sixteen lanes, in every lane, by the same tree. The lower lane is always the first operand: that decides which of
/// −0 and +0, and whether a NaN, remains. All threads of the warp call it.
DEVICE float maximum_of_lanes(float v) {
  UNROLL
  for (int step = lanes / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(full_warp, v, step);
    v = (threadIdx.x & unsigned(step)) ? greater(other, v) : greater(v, other);
  }
  return v;
}

}  // namespace longhaul::cuda
