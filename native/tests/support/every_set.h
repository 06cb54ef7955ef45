// Runs kernels on random inputs with each instruction set; all must give the same bits.
#pragma once

#include "base/philox.h"
#include "support/check.h"
#include "ops/ops.h"

namespace longhaul::test {

/// In [−0.5, 0.5)
inline std::vector<float> random_values(size_t n, uint32_t stream) {
  std::vector<float> values;
  values.reserve(n);
  for (size_t i = 0; i < n; ++i)
    values.push_back(philox_uniform(philox4x32_10({uint32_t(i), stream, 0, 0}, {5, 6})[0]) - 0.5f);
  return values;
}

inline std::vector<float> scaled(std::vector<float> values, float factor, float shift = 0) {
  for (float& value : values) value = value * factor + shift;
  return values;
}

inline void for_each_instruction_set(const std::function<void(const ops::Table&)>& test, ops::Arithmetic arithmetic = ops::Arithmetic::fp32) {
  const ops::InstructionSet best = ops::best_instruction_set();
  for (const auto set : {ops::InstructionSet::scalar, ops::InstructionSet::avx2, ops::InstructionSet::avx512}) {
    if (!ops::supported(set)) continue;
    ops::set_instruction_set(set);
    try {
      test(ops::table(arithmetic));
    } catch (...) {
      ops::set_instruction_set(best);
      throw;
    }
  }
  ops::set_instruction_set(best);
}

/// Returns the result of `compute`, which must have the same bits with every instruction set.
inline std::vector<float> on_every_set(const std::string& what,
                                       const std::function<std::vector<float>(const ops::Table&)>& compute) {
  std::vector<float> expected;
  for_each_instruction_set([&](const ops::Table& table) {
    const std::vector<float> actual = compute(table);
    if (expected.empty()) expected = actual;
    check_same_bits(actual, expected, std::string(table.name) + ", " + what);
  });
  return expected;
}

///actual − expected| ≤ tolerance · the largest |expected| (or 1e-2 if that is smaller)
inline void check_close(const std::vector<float>& actual, const std::vector<double>& expected, double tolerance,
                        const std::string& what) {
  check_equal(actual.size(), expected.size(), what + ": number of values");
  double largest = 1e-2;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < actual.size(); ++i)
    if (!(std::abs(actual[i] - expected[i]) <= tolerance * largest)) {
      std::ostringstream text;
      text.precision(9);
      text << what << ": value " << i << " of " << actual.size() << " is " << actual[i] << " instead of " << expected[i];
      throw Failure(text.str());
    }
}

}  // namespace longhaul::test
