// Shared memory. Every block finds it filled with NaN (bytes 0xFF), so a value that nothing wrote shows in the result.
#pragma once

#include "cuda/device/emulated/block.h"

namespace longhaul::cuda::emulated {

/// One declaration of static shared memory in a kernel.
struct SharedSlot {
  void* data = nullptr;
  uint64_t generation = 0;  // the block for which `data` holds
};

/// The slot's memory in the present block: `bytes` of NaN for the first thread that asks.
void* static_shared(SharedSlot& slot, size_t bytes, Location location);

/// Memory of a block that starts, `block.dynamic_bytes` of it dynamic.
void start_shared();
/// Gives all blocks' memory back, after a grid.
void end_shared();

}  // namespace longhaul::cuda::emulated
