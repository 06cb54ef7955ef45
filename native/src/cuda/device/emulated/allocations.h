// What the emulated device was asked for.
#pragma once

#include <cstddef>

namespace longhaul::cuda::emulated {

/// Begins with what is allocated now.
void start_counting();

/// Bytes of the device's memory since then, at most.
std::size_t most_bytes();

}  // namespace longhaul::cuda::emulated
