// Shared by all fuzzers.
// defines: MUST
#pragma once

#include <cstdio>
#include <cstdlib>

// Fails if accepted input breaks a promise of the reader.
#define MUST(condition)                                                    \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)
