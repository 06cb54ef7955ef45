// Sixteen fp32 lanes: one AVX-512 register, two AVX2 registers, or an array. Every operation gives the same bits on all three, and so does
// all code written in these operations. One file for each instruction set includes this header; so it uses no std header with inline code,
// because the linker could keep a copy that was compiled for another instruction set.
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
// a > b ? a : b, so a NaN in b is kept
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
// a where `condition` > 0, else 0
inline Vec where_positive(Vec condition, Vec a) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(condition, _mm512_setzero_ps(), _CMP_GT_OQ), a);
}
inline Vec load_bytes(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Vec load_bytes(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// The integer n modulo 256 for each lane of n + 1.5·2²³
inline void store_low_bytes(void* p, Vec shifted) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_castps_si512(shifted)));
}
// A fraction in [0, 1) for each lane: a hash (lowbias32) of its bits and its place; lane 0 has place `first_place`
inline Vec hashed_fraction(Vec v, uint32_t first_place) {
  const __m512i place = _mm512_add_epi32(_mm512_set1_epi32(int(first_place)),
                                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  __m512i h = _mm512_xor_si512(_mm512_castps_si512(v), _mm512_mullo_epi32(place, _mm512_set1_epi32(int(0x9E3779B9u))));
  h = _mm512_mullo_epi32(_mm512_xor_si512(h, _mm512_srli_epi32(h, 16)), _mm512_set1_epi32(int(0x7FEB352Du)));
  h = _mm512_mullo_epi32(_mm512_xor_si512(h, _mm512_srli_epi32(h, 15)), _mm512_set1_epi32(int(0x846CA68Bu)));
  h = _mm512_xor_si512(h, _mm512_srli_epi32(h, 16));
  h = _mm512_or_si512(_mm512_srli_epi32(h, 9), _mm512_set1_epi32(0x3F800000));
  return _mm512_sub_ps(_mm512_castsi512_ps(h), _mm512_set1_ps(1.0f));
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
inline __m256i first_mask_half(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline __m256 load_first_half(const float* p, __m256i mask, float fill) {
  return _mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
}
inline Vec load_first(const float* p, int n, float fill) {
  return {load_first_half(p, first_mask_half(n), fill), load_first_half(p + 8, first_mask_half(n - 8), fill)};
}
inline void store_first(float* p, Vec v, int n) {
  _mm256_maskstore_ps(p, first_mask_half(n), v.low);
  _mm256_maskstore_ps(p + 8, first_mask_half(n - 8), v.high);
}
inline Vec keep_first(Vec v, int n) {
  return {_mm256_and_ps(v.low, _mm256_castsi256_ps(first_mask_half(n))),
          _mm256_and_ps(v.high, _mm256_castsi256_ps(first_mask_half(n - 8)))};
}
inline __m256 where_positive_half(__m256 condition, __m256 a) {
  return _mm256_and_ps(_mm256_cmp_ps(condition, _mm256_setzero_ps(), _CMP_GT_OQ), a);
}
inline Vec where_positive(Vec condition, Vec a) {
  return {where_positive_half(condition.low, a.low), where_positive_half(condition.high, a.high)};
}
inline __m128i load_eight_bytes(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
inline Vec load_bytes(const int8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_eight_bytes(p))),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_eight_bytes(p + 8)))};
}
inline Vec load_bytes(const uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_eight_bytes(p))),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_eight_bytes(p + 8)))};
}
inline __m128i low_bytes_half(__m256 shifted) {
  const __m256i first_bytes = _mm256_set1_epi32(0x0C080400);
  const __m256i fours = _mm256_shuffle_epi8(_mm256_castps_si256(shifted), first_bytes);
  return _mm_unpacklo_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
}
inline void store_low_bytes(void* p, Vec shifted) {
  _mm_storeu_si128(static_cast<__m128i*>(p),
                   _mm_unpacklo_epi64(low_bytes_half(shifted.low), low_bytes_half(shifted.high)));
}
inline __m256 hashed_fraction_half(__m256 v, uint32_t first_place) {
  const __m256i place =
      _mm256_add_epi32(_mm256_set1_epi32(int(first_place)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256i h = _mm256_xor_si256(_mm256_castps_si256(v), _mm256_mullo_epi32(place, _mm256_set1_epi32(int(0x9E3779B9u))));
  h = _mm256_mullo_epi32(_mm256_xor_si256(h, _mm256_srli_epi32(h, 16)), _mm256_set1_epi32(int(0x7FEB352Du)));
  h = _mm256_mullo_epi32(_mm256_xor_si256(h, _mm256_srli_epi32(h, 15)), _mm256_set1_epi32(int(0x846CA68Bu)));
  h = _mm256_xor_si256(h, _mm256_srli_epi32(h, 16));
  h = _mm256_or_si256(_mm256_srli_epi32(h, 9), _mm256_set1_epi32(0x3F800000));
  return _mm256_sub_ps(_mm256_castsi256_ps(h), _mm256_set1_ps(1.0f));
}
inline Vec hashed_fraction(Vec v, uint32_t first_place) {
  return {hashed_fraction_half(v.low, first_place), hashed_fraction_half(v.high, first_place + 8)};
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
inline Vec where_positive(Vec condition, Vec a) {
  return each_lane([&](int i) { return condition.lane[i] > 0.0f ? a.lane[i] : 0.0f; });
}
inline Vec load_bytes(const int8_t* p) {
  return each_lane([&](int i) { return float(p[i]); });
}
inline Vec load_bytes(const uint8_t* p) {
  return each_lane([&](int i) { return float(p[i]); });
}
inline void store_low_bytes(void* p, Vec shifted) {
  for (int i = 0; i < lanes; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, &shifted.lane[i], 4);
    static_cast<uint8_t*>(p)[i] = uint8_t(bits);
  }
}
inline Vec hashed_fraction(Vec v, uint32_t first_place) {
  return each_lane([&](int i) {
    uint32_t h;
    __builtin_memcpy(&h, &v.lane[i], 4);
    h ^= (first_place + uint32_t(i)) * 0x9E3779B9u;
    h = (h ^ (h >> 16)) * 0x7FEB352Du;
    h = (h ^ (h >> 15)) * 0x846CA68Bu;
    h ^= h >> 16;
    h = (h >> 9) | 0x3F800000u;
    float fraction;
    __builtin_memcpy(&fraction, &h, 4);
    return fraction - 1.0f;
  });
}

#endif

// The summation tree: first lanes i and i + 8, then + 4, + 2, + 1.
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

inline Vec absolute(Vec a) { return max(a, sub(zeros(), a)); }

// 1.5·2²³: adding it rounds to the nearest integer, ties to even, and leaves that integer in the low bits
constexpr float integer_shift = 12582912.0f;

// eˣ to 2 ulp; x is clamped to [−87, 88], NaN stays NaN. Range reduction and polynomial after Cephes' expf.
inline Vec exponential(Vec x) {
  x = min(broadcast(88.0f), max(broadcast(-87.0f), x));
  const Vec shift = broadcast(integer_shift);
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

// ln x for normal x > 0; NaN and infinity are returned unchanged. After Cephes' logf.
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
