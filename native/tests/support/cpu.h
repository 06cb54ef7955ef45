// The CPU's backend for tests that have a pool of threads.
#pragma once

#include <optional>

#include "backend/cpu_backend.h"

namespace longhaul::test {

/// The same object, on another pool, at the next call.
inline Backend& cpu(ThreadPool& pool) {
  static std::optional<CpuBackend> backend;
  return backend.emplace(pool);
}

}  // namespace longhaul::test
