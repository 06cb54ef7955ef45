// Transcendental functions in plain IEEE double operations: the same bits with every compiler and C library, whereas
// libm differs between versions. Accurate to about 1e-15; for tables, initial weights and loss ratios, not for inner
// loops.
#pragma once

#include <cmath>
#include <cstdint>

namespace longhaul::exact {

inline double exp(double x) {
  if (!(x == x)) return x;
  if (x > 700) return HUGE_VAL;
  if (x < -700) return 0;
  const double n = std::nearbyint(x * 1.4426950408889634);
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double term = 1, total = 1;
  for (int k = 1; k <= 18; ++k) {
    term = term * r / k;
    total += term;
  }
  return std::ldexp(total, int(n));
}

/// x > 0
inline double log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m += m;
    exponent -= 1;
  }
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double power = s, total = 0;
  for (int k = 1; k <= 27; k += 2) {
    total += power / k;
    power *= s2;
  }
  return exponent * 6.93147180369123816490e-01 + (exponent * 1.90821492927058770002e-10 + 2 * total);
}

struct SineCosine {
  double sine, cosine;
};

/// |x| up to about 10⁶
inline SineCosine sine_cosine(double x) {
  // π/2 in three parts. The first two have 33 bits, so their products with n are exact.
  const double n = std::nearbyint(x * 0.63661977236758134);
  const double r = ((x - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21;
  const double r2 = r * r;
  double sine = 0, cosine = 0;
  for (int k = 19; k >= 3; k -= 2) sine = (1 + sine) * -r2 / (k * (k - 1));
  sine = r * (1 + sine);
  for (int k = 20; k >= 2; k -= 2) cosine = (1 + cosine) * -r2 / (k * (k - 1));
  cosine = 1 + cosine;
  switch (int64_t(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

/// xⁿ for n ≥ 0, by squaring.
inline double integer_power(double x, int64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1) {
    if (n & 1) result *= x;
    x *= x;
  }
  return result;
}

}  // namespace longhaul::exact
