// Which bits a backend computes, and what its checks compare them with.
#pragma once

#include <memory>

#include "base/thread_pool.h"

namespace longhaul {

class Backend;

/// What surely computes the bits of a numerics. A device that may err is compared with it.
struct Oracle {
  const char* name;  // in errors: "CPU"
  std::unique_ptr<Backend> (*make_backend)(ThreadPool& pool);
  /// sums [outputs, inputs] += dyᵀ·x; dy [rows, outputs], x [rows, inputs]. Rows go in order, as one chain.
  void (*add_gradient)(const float* dy, const float* x, int rows, int outputs, int inputs, float* sums);
};

/// Equal numerics, equal bits, whatever the device (R18).
struct Numerics {
  const char* name;
  int version;
  Oracle oracle;
};

/// fp32 in the engine's order of sums.
extern const Numerics cpu_numerics;
/// bf16 on the tensor cores of an H100.
extern const Numerics bf16_numerics;

}  // namespace longhaul
