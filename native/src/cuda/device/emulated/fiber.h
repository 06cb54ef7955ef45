// Switching between fibers.
#pragma once

#include "cuda/device/emulated/block.h"

namespace longhaul::cuda::emulated {

/// Prepares the block's fibers to run from their first instruction on.
void start_fibers();

/// After a block: gives their records back to the sanitizer. Threads may be left that have not exited, after a failure.
void end_fibers();

/// Goes on with another fiber; returns when something switches back.
void switch_to(Fiber* to);

}  // namespace longhaul::cuda::emulated
