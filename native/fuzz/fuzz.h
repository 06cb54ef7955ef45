// What the fuzzers have in common.
// defines: MUST
#pragma once

#include <cstdio>
#include <cstdlib>

// A finding: what was accepted is not what it says it is.
#define MUST(condition)                                                    \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)
