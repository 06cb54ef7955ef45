#include "base/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace longhaul {

namespace {

constexpr int fraction_bits = 25;  // kept behind the greatest exponent's bit
constexpr int float_bits = 24;     // of an fp32 significand

/// significand · 2^exponent; the exponent of zero is below all others.
struct Term {
  int64_t significand;
  int exponent;
};
constexpr int exponent_of_zero = -100'000;

/// The significand has its point behind bit `point`.
Term term_of(float value, int point) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits << 1) == 0) return {0, exponent_of_zero};
  const int field = int(bits >> 23 & 0xFF);
  const int64_t significand = ((bits & 0x7FFFFF) | (field == 0 ? 0 : 0x800000)) >> (23 - point);
  return {bits >> 31 ? -significand : significand, std::max(field, 1) - 127};
}

int64_t shifted(int64_t significand, int left) {
  const int64_t size = std::abs(significand);
  const int64_t moved = left >= 0 ? size << left : left > -63 ? size >> -left : 0;
  return significand < 0 ? -moved : moved;
}

/// total · 2^exponent, cut to fp32
float cut_to_float(int64_t total, int exponent) {
  const int dropped = std::max(0, int(std::bit_width(uint64_t(std::abs(total)))) - float_bits);
  int64_t kept = std::abs(total) >> dropped;
  exponent += dropped;
  // An fp32 number has no bit below 2⁻¹⁴⁹.
  constexpr int lowest = -149;
  if (exponent < lowest) {
    kept = shifted(kept, exponent - lowest);
    exponent = lowest;
  }
  const float size = float(std::ldexp(double(kept), exponent));
  return total < 0 ? -size : size;
}

}  // namespace

float tensor_core_sum(float c, const float* a, size_t step_a, const float* b, size_t step_b, int count) {
  bool is_finite = std::isfinite(c);
  for (int k = 0; k < count; ++k) is_finite = is_finite && std::isfinite(a[k * step_a]) && std::isfinite(b[k * step_b]);
  if (!is_finite) {
    // Terms that are finite change neither an infinity nor a NaN.
    float sum = std::isfinite(c) ? 0.0f : c;
    for (int k = 0; k < count; ++k) {
      const float x = a[k * step_a], y = b[k * step_b];
      if (!std::isfinite(x) || !std::isfinite(y)) sum += x * y;
    }
    return std::isnan(sum) ? std::bit_cast<float>(0x7FFFFFFF) : sum;
  }

  constexpr int bf16_point = 7, float_point = 23;
  Term products[products_at_once];
  const Term first = term_of(c, float_point);
  int top = first.exponent;
  for (int k = 0; k < count; ++k) {
    const Term x = term_of(a[k * step_a], bf16_point), y = term_of(b[k * step_b], bf16_point);
    const int64_t significand = x.significand * y.significand;
    products[k] = {significand, significand == 0 ? exponent_of_zero : x.exponent + y.exponent};
    top = std::max(top, products[k].exponent);
  }
  int64_t total = shifted(first.significand, fraction_bits - float_point + first.exponent - top);
  for (int k = 0; k < count; ++k)
    total += shifted(products[k].significand, fraction_bits - 2 * bf16_point + products[k].exponent - top);
  return total == 0 ? 0.0f : cut_to_float(total, top - fraction_bits);
}

}  // namespace longhaul
