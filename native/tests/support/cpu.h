// The backend of tests that have a pool of threads: the CPU, or with LONGHAUL_TEST_ON_DEVICE the emulated device.
#pragma once

#include <optional>

#ifdef LONGHAUL_TEST_ON_DEVICE
#include "support/holding_device.h"
#else
#include "backend/cpu_backend.h"
#endif

namespace longhaul::test {

/// The same object, on another pool, at the next call.
inline Backend& cpu(ThreadPool& pool) {
#ifdef LONGHAUL_TEST_ON_DEVICE
  static_cast<void>(pool);
  static HoldingDevice backend;
  return backend;
#else
  static std::optional<CpuBackend> backend;
  return backend.emplace(pool);
#endif
}

}  // namespace longhaul::test
