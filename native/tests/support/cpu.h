// The backend of tests that have a pool of threads: the CPU, or with LONGHAUL_TEST_ON_DEVICE the emulated device. With the variable
// LONGHAUL_TEST_BF16 the CPU computes in bf16.
#pragma once

#include <cstdlib>
#include <optional>

#include "ops/ops.h"
#ifdef LONGHAUL_TEST_ON_DEVICE
#include "support/holding_device.h"
#else
#include "backend/cpu_backend.h"
#endif

namespace longhaul::test {

inline ops::Arithmetic arithmetic() {
  static const bool bf16 = std::getenv("LONGHAUL_TEST_BF16") != nullptr;
  return bf16 ? ops::Arithmetic::bf16 : ops::Arithmetic::fp32;
}

/// The same object, on another pool, at the next call.
inline Backend& cpu(ThreadPool& pool) {
#ifdef LONGHAUL_TEST_ON_DEVICE
  static_cast<void>(pool);
  static HoldingDevice backend;
  return backend;
#else
  static std::optional<CpuBackend> backend;
  return backend.emplace(pool, arithmetic());
#endif
}

}  // namespace longhaul::test
