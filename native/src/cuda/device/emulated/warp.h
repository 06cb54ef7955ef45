// Operations by which lanes of a warp exchange values. They order no memory, as on a GPU.
#pragma once

#include "cuda/device/emulated/block.h"

namespace longhaul::cuda::emulated {

/// The value of lane `source` & 31.
uint32_t shuffle(unsigned mask, uint32_t value, int source, int width, const char* operation, Location location);

/// A bit for each lane with `predicate` ≠ 0.
unsigned ballot(unsigned mask, int predicate, Location location);

/// The current thread's lane.
inline int lane() { return current->lane; }

}  // namespace longhaul::cuda::emulated
