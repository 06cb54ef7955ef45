// Which thread runs next. Seed 0: threads, warps and blocks in order, each thread until it waits. Any other seed: random orders, drawn
// again at each barrier, and now and then a running thread is left for another warp's. A correct kernel gives the same bits in all.
#pragma once

#include "cuda/device/emulated/block.h"

namespace longhaul::cuda::emulated {

/// Starts the random numbers of the block that `block.index` names, and its orders.
void start_schedule();

/// Draws the orders of lanes and warps again.
void shuffle_orders();

/// Leaves the current thread, which waits or has exited, for the next one that is ready; for the launcher if none is.
void park();

/// Leaves the current thread, which is ready, for a ready one of another warp.
void leave_for_another_warp();

uint64_t next_random();

}  // namespace longhaul::cuda::emulated
