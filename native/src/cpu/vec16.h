// Sixteen fp32 lanes: one AVX-512 register, two AVX2 registers, or an array. Every operation gives the same bits on all
// three, and so does whatever is written in them. Included by one file for each instruction set; hence no std headers
// with inline code, whose copies the linker could mix.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace longhaul::ops {
namespace {

constexpr int lanes = 16;

#if defined(__AVX512F__)

using Vec = __m512;

inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline Vec broadcast(float x) { return _mm512_set1_ps(x); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec square_root(Vec a) { return _mm512_sqrt_ps(a); }
// a > b ? a : b, so a NaN in b stays
inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline __mmask16 first_mask(int n) { return __mmask16((1u << n) - 1u); }
inline Vec load_first(const float* p, int n, float fill) {
  return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), first_mask(n), p);
}
inline void store_first(float* p, Vec v, int n) { _mm512_mask_storeu_ps(p, first_mask(n), v); }
inline Vec keep_first(Vec v, int n) { return _mm512_maskz_mov_ps(first_mask(n), v); }
// 2ⁿ for each lane of n + 1.5·2²³
inline Vec power_of_two(Vec shifted) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(127)), 23));
}
inline __m256 lower_half(Vec v) { return _mm512_castps512_ps256(v); }
inline __m256 upper_half(Vec v) { return _mm512_extractf32x8_ps(v, 1); }

#elif defined(__AVX2__)

struct Vec {
  __m256 low, high;
};

inline Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Vec v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
inline Vec broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Vec square_root(Vec a) { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Vec load_first(const float* p, int n, float fill) {
  float whole[lanes];
  for (int i = 0; i < lanes; ++i) whole[i] = i < n ? p[i] : fill;
  return load(whole);
}
inline void store_first(float* p, Vec v, int n) {
  float whole[lanes];
  store(whole, v);
  for (int i = 0; i < n; ++i) p[i] = whole[i];
}
inline Vec keep_first(Vec v, int n) {
  float whole[lanes];
  store(whole, v);
  for (int i = n; i < lanes; ++i) whole[i] = 0.0f;
  return load(whole);
}
inline __m256 power_of_two_half(__m256 shifted) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127)), 23));
}
inline Vec power_of_two(Vec shifted) { return {power_of_two_half(shifted.low), power_of_two_half(shifted.high)}; }
inline __m256 lower_half(Vec v) { return v.low; }
inline __m256 upper_half(Vec v) { return v.high; }

#else

struct Vec {
  float lane[lanes];
};

template <class Fn>
inline Vec each_lane(Fn&& fn) {
  Vec v;
  for (int i = 0; i < lanes; ++i) v.lane[i] = fn(i);
  return v;
}
inline Vec load(const float* p) {
  return each_lane([&](int i) { return p[i]; });
}
inline void store(float* p, Vec v) {
  for (int i = 0; i < lanes; ++i) p[i] = v.lane[i];
}
inline Vec broadcast(float x) {
  return each_lane([&](int) { return x; });
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return each_lane([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
inline Vec add(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec sub(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec mul(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec div(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline Vec square_root(Vec a) {
  return each_lane([&](int i) { return __builtin_sqrtf(a.lane[i]); });
}
inline Vec max(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec min(Vec a, Vec b) {
  return each_lane([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec load_first(const float* p, int n, float fill) {
  return each_lane([&](int i) { return i < n ? p[i] : fill; });
}
inline void store_first(float* p, Vec v, int n) {
  for (int i = 0; i < n; ++i) p[i] = v.lane[i];
}
inline Vec keep_first(Vec v, int n) {
  return each_lane([&](int i) { return i < n ? v.lane[i] : 0.0f; });
}
inline Vec power_of_two(Vec shifted) {
  return each_lane([&](int i) {
    uint32_t bits;
    __builtin_memcpy(&bits, &shifted.lane[i], 4);
    bits = (bits + 127u) << 23;
    float power;
    __builtin_memcpy(&power, &bits, 4);
    return power;
  });
}

#endif

// The tree: lanes i and i + 8, then + 4, + 2, + 1.
#if defined(__AVX2__)
inline float sum(Vec v) {
  const __m256 eight = _mm256_add_ps(lower_half(v), upper_half(v));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float maximum(Vec v) {
  const __m256 eight = _mm256_max_ps(lower_half(v), upper_half(v));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
#else
inline float sum(Vec v) {
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) v.lane[i] = v.lane[i] + v.lane[i + width];
  return v.lane[0];
}
inline float maximum(Vec v) {
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) v.lane[i] = v.lane[i] > v.lane[i + width] ? v.lane[i] : v.lane[i + width];
  return v.lane[0];
}
#endif

inline Vec zeros() { return broadcast(0.0f); }

// eˣ to 2 ulp; x is clamped to [−87, 88], NaN stays NaN. Range reduction and polynomial after Cephes' expf.
inline Vec exponential(Vec x) {
  x = min(broadcast(88.0f), max(broadcast(-87.0f), x));
  const Vec shift = broadcast(12582912.0f);  // 1.5·2²³: adding it rounds to the nearest integer
  const Vec shifted = fma(x, broadcast(1.44269504088896341f), shift);
  const Vec n = sub(shifted, shift);
  Vec r = fma(n, broadcast(-0.693359375f), x);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  return mul(fma(p, mul(r, r), add(r, broadcast(1.0f))), power_of_two(shifted));
}

// ln x for normal x > 0; NaN and infinity stay. Cephes' logf.
inline float logarithm(float x) {
  if (!(x < __builtin_inff())) return x;
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  int exponent = int(bits >> 23) - 126;
  bits = (bits & 0x007FFFFFu) | 0x3F000000u;
  float m;
  __builtin_memcpy(&m, &bits, 4);
  if (m < 0.707106781186547524f) {
    exponent -= 1;
    m = m + m;
  }
  const float r = m - 1.0f, r2 = r * r, n = float(exponent);
  float p = 7.0376836292e-2f;
  p = __builtin_fmaf(p, r, -1.1514610310e-1f);
  p = __builtin_fmaf(p, r, 1.1676998740e-1f);
  p = __builtin_fmaf(p, r, -1.2420140846e-1f);
  p = __builtin_fmaf(p, r, 1.4249322787e-1f);
  p = __builtin_fmaf(p, r, -1.6668057665e-1f);
  p = __builtin_fmaf(p, r, 2.0000714765e-1f);
  p = __builtin_fmaf(p, r, -2.4999993993e-1f);
  p = __builtin_fmaf(p, r, 3.3333331174e-1f);
  float y = p * r * r2;
  y = __builtin_fmaf(n, -2.12194440e-4f, y);
  y = __builtin_fmaf(r2, -0.5f, y);
  return __builtin_fmaf(n, 0.693359375f, r + y);
}

// Σ a[i]·b[i], n a multiple of 16
inline float dot(const float* a, const float* b, int n) {
  Vec s = zeros();
  for (int i = 0; i < n; i += lanes) s = fma(load(a + i), load(b + i), s);
  return sum(s);
}

}  // namespace
}  // namespace longhaul::ops
