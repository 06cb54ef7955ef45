// A minimal test harness that prints the line of each failed check.
// defines: CHECK, CHECK_THROWS, finish
#pragma once

#include <cstdio>
#include <exception>
#include <string>

namespace longhaul::test {

inline int failures = 0;

inline void check(bool holds, const char* what, const char* file, int line) {
  if (holds) return;
  ++failures;
  std::printf("%s:%d: does not hold: %s\n", file, line, what);
}

// Runs `action`, which must throw an Error whose message contains `part`.
template <class Error, class Action>
void check_throws(Action&& action, const std::string& part, const char* file, int line) {
  try {
    action();
  } catch (const Error& error) {
    if (std::string(error.what()).find(part) != std::string::npos) return;
    ++failures;
    std::printf("%s:%d: the error is \"%s\", without \"%s\"\n", file, line, error.what(), part.c_str());
    return;
  } catch (const std::exception& error) {
    ++failures;
    std::printf("%s:%d: an error of another type: %s\n", file, line, error.what());
    return;
  }
  ++failures;
  std::printf("%s:%d: no error; expected \"%s\"\n", file, line, part.c_str());
}

inline int finish() {
  if (failures == 0) std::printf("all checks hold\n");
  return failures == 0 ? 0 : 1;
}

}  // namespace longhaul::test

#define CHECK(condition) ::longhaul::test::check((condition), #condition, __FILE__, __LINE__)
#define CHECK_THROWS(Error, action, part) \
  ::longhaul::test::check_throws<Error>([&] { action; }, (part), __FILE__, __LINE__)
