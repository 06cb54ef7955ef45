// The peak rate of multiply-adds on this machine: a loop of independent multiply-adds in registers.
#pragma once

#include <immintrin.h>

#include "ops/ops.h"

namespace longhaul::bench {

// Sixteen chains are enough to fill two units with a latency of four or five cycles. The sums tend to 1 and neither grow nor vanish.
inline constexpr int fma_chains = 16;

[[gnu::target("avx512f"), gnu::noinline]] inline float fma_loop_avx512(long rounds) {
  __m512 sums[fma_chains];
#pragma GCC unroll 16
  for (int i = 0; i < fma_chains; ++i) sums[i] = _mm512_set1_ps(float(i));
  const __m512 factor = _mm512_set1_ps(0.875f), term = _mm512_set1_ps(0.125f);
  for (long r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < fma_chains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
  }
  float total = 0;
#pragma GCC unroll 16
  for (int i = 0; i < fma_chains; ++i) total += _mm512_cvtss_f32(sums[i]);
  return total;
}

// Fourteen chains, because AVX2 has only sixteen registers.
inline constexpr int fma_chains_avx2 = 14;

[[gnu::target("avx2,fma"), gnu::noinline]] inline float fma_loop_avx2(long rounds) {
  __m256 sums[fma_chains_avx2];
#pragma GCC unroll 14
  for (int i = 0; i < fma_chains_avx2; ++i) sums[i] = _mm256_set1_ps(float(i));
  const __m256 factor = _mm256_set1_ps(0.875f), term = _mm256_set1_ps(0.125f);
  for (long r = 0; r < rounds; ++r) {
#pragma GCC unroll 14
    for (int i = 0; i < fma_chains_avx2; ++i) sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
  }
  float total = 0;
#pragma GCC unroll 14
  for (int i = 0; i < fma_chains_avx2; ++i) total += _mm256_cvtss_f32(sums[i]);
  return total;
}

/// Runs at least about `flops` floating-point operations on this thread with the current instruction set, and returns their number; 0 for
/// the scalar instruction set.
inline double fma_burst(double flops) {
  [[maybe_unused]] static volatile float kept;
  switch (ops::instruction_set()) {
    case ops::InstructionSet::avx512: {
      const long rounds = long(flops / (2 * 16 * fma_chains)) + 1;
      kept = fma_loop_avx512(rounds);
      return double(rounds) * 2 * 16 * fma_chains;
    }
    case ops::InstructionSet::avx2: {
      const long rounds = long(flops / (2 * 8 * fma_chains_avx2)) + 1;
      kept = fma_loop_avx2(rounds);
      return double(rounds) * 2 * 8 * fma_chains_avx2;
    }
    case ops::InstructionSet::scalar:
      break;
  }
  return 0;
}

}  // namespace longhaul::bench
