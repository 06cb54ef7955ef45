// Products as a tensor core computes them (base/tensor_core.h): every element of C is one chain over k = 0..K−1 in sixteens, from +0. The
// operands are fp32 values that are bf16 numbers.
//
// All terms of a sum are multiples of one unit, 2^(top − 25). So each term, divided by the unit and cut, is an integer below 2²⁷, and
// integers are added exactly, in any order. The few sums that 32 bits or the range of fp32 do not hold are computed one by one.
#pragma once

#include "base/tensor_core.h"
#include "cpu/scratch.h"
#include "ops/ops.h"

namespace longhaul::ops {
namespace {

// A tile of C, in registers: as many rows of one vector as leave room for a unit and a sum each.
#if defined(__AVX512F__)
constexpr int chain_lanes = 16, chain_rows = 8;
#elif defined(__AVX2__)
constexpr int chain_lanes = 8, chain_rows = 6;
#else
constexpr int chain_lanes = 4, chain_rows = 4;
#endif
using Floats = float __attribute__((vector_size(chain_lanes * 4), aligned(4), may_alias));
using Integers = int32_t __attribute__((vector_size(chain_lanes * 4), aligned(4), may_alias));

constexpr int exponent_bias = 127, fraction_width = 23, kept_fraction = 25;
/// A product's exponent with twice the bias, if a factor is zero: below all others.
constexpr int32_t below_all = -100'000;
/// Of infinity and NaN: above all others, even with a factor of zero beside it.
constexpr int32_t above_all = 300'000;
/// Between these exponents (with twice the bias) of a sum's greatest term, fp32 holds every product or its cut, and the sum's unit.
constexpr int32_t least_top = 2 * exponent_bias - 100, greatest_top = 2 * exponent_bias + 125;

[[gnu::always_inline]] inline Integers all(int32_t x) { return Integers{} + x; }
[[gnu::always_inline]] inline Integers greater(Integers a, Integers b) { return a > b ? a : b; }

/// Exponents with bias; those of subnormal numbers are 1.
[[gnu::always_inline]] inline Integers exponents(Floats values) {
  const Integers bits = Integers(values) & 0x7FFFFFFF, finite = greater(bits >> fraction_width, all(1));
  const Integers any = bits >= 0x7F800000 ? all(above_all) : finite;
  return bits == 0 ? all(below_all) : any;
}

/// Rows of A, side by side: for each k, `height` values and then their exponents.
struct ChainRows {
  const float* packed;
  int height;
  [[gnu::always_inline]] const float* values(int k) const { return packed + size_t(k) * 2 * height; }
  [[gnu::always_inline]] int32_t exponent(int k, int row) const {
    int32_t exponent;
    __builtin_memcpy(&exponent, values(k) + height + row, sizeof exponent);
    return exponent;
  }
};

/// The sums of one vector, one by one. `sums`: before the sixteen, then behind it.
[[gnu::noinline]] inline void sum_one_by_one(ChainRows a, const float* panel, int k, int count, float* sums) {
  for (int row = 0; row < a.height; ++row)
    for (int lane = 0; lane < chain_lanes; ++lane) {
      float& sum = sums[row * chain_lanes + lane];
      sum = tensor_core_sum(sum, a.values(k) + row, size_t(2) * a.height, panel + size_t(k) * panel_columns + lane, panel_columns, count);
    }
}

/// `panel`: a panel's first wanted column. Continues the chains of sums [Rows, lanes] by `depth` products.
template <int Rows>
[[gnu::noinline]] void chain_tile(const float* packed, const float* panel, int depth, float* sums) {
  const ChainRows a{packed, Rows};
  for (int k = 0; k < depth; k += products_at_once) {
    const int count = depth - k < products_at_once ? depth - k : products_at_once;
    Integers top[Rows];
#pragma GCC unroll 8
    for (int row = 0; row < Rows; ++row)
      top[row] = exponents(*reinterpret_cast<const Floats*>(sums + row * chain_lanes)) + exponent_bias;
    for (int i = k; i < k + count; ++i) {
      const Integers b = exponents(*reinterpret_cast<const Floats*>(panel + size_t(i) * panel_columns));
#pragma GCC unroll 8
      for (int row = 0; row < Rows; ++row) top[row] = greater(top[row], b + a.exponent(i, row));
    }

    Integers is_out{};
    Floats per_unit[Rows];
    Integers total[Rows];
#pragma GCC unroll 8
    for (int row = 0; row < Rows; ++row) {
      is_out |= (top[row] > greatest_top) | ((top[row] < least_top) & (top[row] > below_all / 2));
      const Integers least = greater(top[row], all(least_top)), bounded = least > greatest_top ? all(greatest_top) : least;
      per_unit[row] = Floats((kept_fraction + 3 * exponent_bias - bounded) << fraction_width);
      total[row] = Integers{};
    }
    for (int i = k; i < k + count; ++i) {
      const Floats b = *reinterpret_cast<const Floats*>(panel + size_t(i) * panel_columns);
      const float* values = a.values(i);
#pragma GCC unroll 8
      for (int row = 0; row < Rows; ++row) total[row] += __builtin_convertvector((b * values[row]) * per_unit[row], Integers);
    }

    Floats next[Rows];
#pragma GCC unroll 8
    for (int row = 0; row < Rows; ++row) {
      const Floats before = *reinterpret_cast<const Floats*>(sums + row * chain_lanes);
      const Integers first = __builtin_convertvector(before * per_unit[row], Integers), sum = total[row] + first;
      is_out |= (total[row] ^ sum) & (first ^ sum);  // negative where 32 bits do not hold the sum
      const Integers size = sum < 0 ? -sum : sum;
      // Rounded to nearest; one bit less where that is too much.
      const Floats rounded = __builtin_convertvector(size, Floats);
      const Integers cut = Integers(rounded) + ((size - __builtin_convertvector(rounded, Integers)) >> 31);
      const Floats unit = Floats((2 * exponent_bias << fraction_width) - Integers(per_unit[row]));
      next[row] = Floats(Integers(Floats(cut) * unit) | (sum & INT32_MIN));
    }
    bool one_by_one = false;
    for (int lane = 0; lane < chain_lanes; ++lane) one_by_one |= is_out[lane] < 0;
    if (__builtin_expect(one_by_one, false)) {
      sum_one_by_one(a, panel, k, count, sums);
      continue;
    }
#pragma GCC unroll 8
    for (int row = 0; row < Rows; ++row) *reinterpret_cast<Floats*>(sums + row * chain_lanes) = next[row];
  }
}

/// A(i, k) = a[i · stride_row + k · stride_depth] for `height` rows, and their exponents.
inline void pack_chain_rows(const float* a, size_t stride_row, size_t stride_depth, int height, int depth, float* packed) {
  for (int k = 0; k < depth; ++k, packed += 2 * height)
    for (int row = 0; row < height; ++row) {
      const float value = a[row * stride_row + k * stride_depth];
      uint32_t bits;
      __builtin_memcpy(&bits, &value, sizeof bits);
      bits &= 0x7FFFFFFFu;
      const int32_t field = int32_t(bits >> fraction_width);
      const int32_t exponent = bits == 0 ? below_all : field == 0 ? 1 : field == 255 ? above_all : field;
      packed[row] = value;
      __builtin_memcpy(packed + height + row, &exponent, sizeof exponent);
    }
}

/// C[rows, columns] = or continues chains over A(i, k) = a[i · stride_row + k · stride_depth] and panels of B [depth, columns].
struct ChainProduct {
  const float* a;
  size_t stride_row, stride_depth;
  const float* panels;
  int depth, columns;
  float* c;
  size_t ldc;
  bool accumulate;
};

/// Tiles of `Rows` rows from `first` on. Returns the first row that is left.
template <int Rows>
inline int chain_rows_of(const ChainProduct& product, int first, int rows) {
  const int depth = product.depth;
  float* packed = scratch(Scratch::chain_rows, size_t(depth) * 2 * Rows);
  alignas(64) float sums[Rows * chain_lanes];
  for (; first + Rows <= rows; first += Rows) {
    pack_chain_rows(product.a + first * product.stride_row, product.stride_row, product.stride_depth, Rows, depth, packed);
    for (int column = 0; column < product.columns; column += chain_lanes) {
      const int kept = product.columns - column < chain_lanes ? product.columns - column : chain_lanes;
      float* c = product.c + first * product.ldc + column;
      __builtin_memset(sums, 0, sizeof sums);
      if (product.accumulate)
        for (int row = 0; row < Rows; ++row)
          __builtin_memcpy(sums + row * chain_lanes, c + row * product.ldc, size_t(kept) * sizeof(float));
      const float* panel = product.panels + size_t(column / panel_columns) * depth * panel_columns;
      chain_tile<Rows>(packed, panel + column % panel_columns, depth, sums);
      for (int row = 0; row < Rows; ++row)
        __builtin_memcpy(c + row * product.ldc, sums + row * chain_lanes, size_t(kept) * sizeof(float));
    }
  }
  return first;
}

inline void compute_chains(const ChainProduct& product, int rows) {
  int first = chain_rows_of<chain_rows>(product, 0, rows);
  first = chain_rows_of<4>(product, first, rows);
  first = chain_rows_of<2>(product, first, rows);
  chain_rows_of<1>(product, first, rows);
}

// C[M,N] = A[M,K] · B[K,N]; with `accumulate` the chains continue from C
void tensor_core_matmul(const float* a, size_t lda, const Panels& b, float* c, size_t ldc, int m, bool accumulate) {
  compute_chains({a, lda, 1, b.values.data(), b.depth, b.columns, c, ldc, accumulate}, m);
}

// C[M,N] += A[K,M]ᵀ · B[K,N]: the chains continue from C
void tensor_core_matmul_transposed(const float* a, size_t lda, const Panels& b, float* c, size_t ldc, int m) {
  compute_chains({a, 1, lda, b.values.data(), b.depth, b.columns, c, ldc, true}, m);
}

}  // namespace
}  // namespace longhaul::ops
