// A test is a function that throws. The main function of a file runs its tests and names the tests that failed.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace longhaul::test {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(bool ok, const std::string& what) {
  if (!ok) throw Failure(what);
}

template <class A, class B>
void check_equal(const A& actual, const B& expected, const std::string& what) {
  if (actual == expected) return;
  std::ostringstream text;
  text << what << ": " << actual << " instead of " << expected;
  throw Failure(text.str());
}

/// |actual − expected| ≤ tolerance · max(1, |expected|)
inline void check_near(double actual, double expected, double tolerance, const std::string& what) {
  if (std::abs(actual - expected) <= tolerance * std::max(1.0, std::abs(expected))) return;
  std::ostringstream text;
  text << what << ": " << actual << " instead of " << expected << " (tolerance " << tolerance << ")";
  throw Failure(text.str());
}

/// Number of values that check_same_bits has compared so far; a benchmark reads it.
struct ComparedBits {
  size_t values = 0, differing = 0;
};
inline ComparedBits compared_bits;

/// Also fails on values that are not finite, because equal NaNs prove nothing.
inline void check_same_bits(const float* actual, const float* expected, size_t n, const std::string& what) {
  compared_bits.values += n;
  for (size_t i = 0; i < n; ++i)
    if (!std::isfinite(expected[i]) || std::memcmp(actual + i, expected + i, sizeof(float)) != 0) {
      ++compared_bits.differing;
      std::ostringstream text;
      text.precision(9);
      text << what << ": value " << i << " of " << n << " is " << actual[i] << " instead of " << expected[i];
      throw Failure(text.str());
    }
}

inline void check_same_bits(const std::vector<float>& actual, const std::vector<float>& expected, const std::string& what) {
  check_equal(actual.size(), expected.size(), what + ": number of values");
  check_same_bits(actual.data(), expected.data(), actual.size(), what);
}

template <class Error>
void check_throws(const std::function<void()>& action, const std::string& part, const std::string& what) {
  try {
    action();
  } catch (const Error& error) {
    check(std::string(error.what()).find(part) != std::string::npos,
          what + ": the error says \"" + error.what() + "\" and not \"" + part + "\"");
    return;
  }
  throw Failure(what + ": no error");
}

using Test = std::pair<const char*, std::function<void()>>;

inline int run(const std::vector<Test>& tests) {
  int failed = 0;
  for (const auto& [name, test] : tests) {
    try {
      test();
      std::printf("ok      %s\n", name);
    } catch (const std::exception& error) {
      std::printf("FAILED  %s: %s\n", name, error.what());
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}

/// Prints a line of JSON that bench/engine-tests.ts reads: the values that a test found, beside its bounds.
inline void print_figures(const std::vector<std::pair<const char*, double>>& figures) {
  const char* before = "{";
  for (const auto& [name, value] : figures) {
    std::printf("%s\"%s\": %.10g", before, name, value);
    before = ", ";
  }
  std::printf("}\n");
}

}  // namespace longhaul::test
