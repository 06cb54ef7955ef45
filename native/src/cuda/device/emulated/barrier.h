// Where threads of a block, or lanes of a warp, wait for each other.
#pragma once

#include "cuda/device/emulated/block.h"

namespace longhaul::cuda::emulated {

/// `__syncthreads`: every thread of the block must come to this very one.
void block_barrier(Location location);

/// `__syncwarp`: every lane of the warp must come to this very one.
void warp_barrier(unsigned mask, Location location);

/// All lanes of the warp meet at one operation; the last to come runs `finish` for all of them.
void meet_warp(const char* operation, Location location, void (*finish)(Warp&));

/// Fails unless `mask` has all lanes.
void require_full_mask(unsigned mask, const char* operation, Location location);

/// The current thread's kernel has returned. Never returns.
[[noreturn]] void exit_thread();

/// Fails with the threads that wait and those that have exited: nothing can go on.
[[noreturn]] void fail_stuck();

}  // namespace longhaul::cuda::emulated
