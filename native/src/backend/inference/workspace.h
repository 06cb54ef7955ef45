// Working memory of one thread in a call of `extend`, or of all threads if they share the work by columns, beside CpuScratch. It is kept
// between calls: a decode step is too short to map fresh pages.
#pragma once

#include "base/aligned_buffer.h"
#include "model/linear.h"

namespace longhaul {

struct Workspace {
  AlignedBuffer hidden, qkv, attention, qkv_adapter, output_adapter, gate_up_adapter, down_adapter;
};

inline Workspace& workspace() {
  static thread_local Workspace workspace;
  return workspace;
}

inline float* adapter_space(AlignedBuffer& buffer, const Linear& linear, int rows) {
  return buffer.scratch(size_t(rows) * size_t(linear.adapter_width()));
}

}  // namespace longhaul
