// Runs kernels on the (emulated) device and compares their results with the CPU's, bit for bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cuda/device/memory.h"
#include "cuda/device/stream.h"
#include "support/every_set.h"

namespace longhaul::test {

/// The stream of all kernels of a test.
inline cuda::Stream stream() {
  static const cuda::Stream made = cuda::make_stream();
  return made;
}

/// An array in the device's memory.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : array_(values, stream()) {}
  /// Contents are unspecified: NaN when emulated.
  explicit DeviceArray(size_t size) : array_(size) {}

  T* data() const { return array_.data(); }
  /// The values after the kernels launched before.
  std::vector<T> values() const { return array_.host(stream()); }

 private:
  mutable cuda::DeviceArray<T> array_;
};

/// A GPU has its own order each time, and need not show that a barrier is missing.
#ifdef LONGHAUL_GPU
inline constexpr uint64_t last_schedule = 2;
inline constexpr bool shows_faults = false;
#else
inline constexpr uint64_t last_schedule = 16;
inline constexpr bool shows_faults = true;
#endif

/// Calls fn in natural order (seed 0) and with 16 other orders of blocks, warps and threads.
inline void for_each_schedule(const std::function<void(const std::string&)>& fn) {
  for (uint64_t seed = 0; seed <= last_schedule; ++seed) {
    cuda::set_schedule(seed);
    try {
      fn("schedule " + std::to_string(seed));
    } catch (...) {
      cuda::set_schedule(0);
      throw;
    }
  }
  cuda::set_schedule(0);
}

/// Equal bits, or both NaN: IEEE 754 leaves a NaN's payload to the machine.
inline bool same_value(float a, float b) { return std::memcmp(&a, &b, sizeof(float)) == 0 || (std::isnan(a) && std::isnan(b)); }

template <class T>
bool same_values(const std::vector<T>& a, const std::vector<T>& b) {
  if constexpr (std::is_same_v<T, float>)
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), same_value);
  else
    return a == b;
}

/// Like check_same_bits, but the results may have NaNs and infinities.
inline void check_same_values(const std::vector<float>& actual, const std::vector<float>& expected, const std::string& what) {
  check_equal(actual.size(), expected.size(), what + ": number of values");
  for (size_t i = 0; i < actual.size(); ++i)
    if (!same_value(actual[i], expected[i])) {
      std::ostringstream text;
      text.precision(9);
      text << what << ": value " << i << " of " << actual.size() << " is " << actual[i] << " instead of " << expected[i];
      throw Failure(text.str());
    }
}

/// The result of `compute`, which must have the same bits with every instruction set; NaNs and infinities are allowed.
inline std::vector<float> reference(const std::string& what, const std::function<std::vector<float>(const ops::Table&)>& compute) {
  std::vector<float> expected;
  for_each_instruction_set([&](const ops::Table& table) {
    const std::vector<float> actual = compute(table);
    if (expected.empty()) expected = actual;
    check_same_values(actual, expected, std::string(table.name) + ", " + what);
  });
  return expected;
}

/// `run(fault)` gives `expected` for fault 0 in every schedule. For each fault from 1 to `faults` (a barrier left out), some schedule gives
/// another result; otherwise no test would notice that the barrier is missing.
template <class T>
void check_schedules(const std::function<std::vector<T>(int fault)>& run, const std::vector<T>& expected, int faults,
                     const std::string& what) {
  for_each_schedule([&](const std::string& schedule) { check(same_values(run(0), expected), what + ", " + schedule + " differs"); });
  for (int fault = 1; shows_faults && fault <= faults; ++fault) {
    bool noticed = false;
    for_each_schedule([&](const std::string&) { noticed = noticed || !same_values(run(fault), expected); });
    check(noticed, what + ": no schedule shows that barrier " + std::to_string(fault) + " is missing");
  }
}

/// Values with −0 among them.
inline std::vector<float> with_zeros(std::vector<float> values) {
  for (size_t i = 0; i < values.size(); i += 7) values[i] = -0.0f;
  for (size_t i = 3; i < values.size(); i += 11) values[i] = 0.0f;
  return values;
}

/// Values with a NaN and both infinities among them.
inline std::vector<float> with_extremes(std::vector<float> values) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const size_t n = values.size();
  values[n / 5] = std::numeric_limits<float>::quiet_NaN();
  values[n / 2] = infinity;
  values[n - 1 - n / 9] = -infinity;
  return values;
}

}  // namespace longhaul::test
