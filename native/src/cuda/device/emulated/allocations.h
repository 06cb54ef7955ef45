// What the emulated device was asked for.
#pragma once

#include <cstddef>

namespace longhaul::cuda::emulated {

/// Begins with what is allocated now.
void start_counting();

/// The newest allocation of just this size that is not freed; null if there is none. A test changes values there, as a broken GPU would.
void* newest_of(std::size_t bytes);

/// Bytes of the device's memory since then, at most.
std::size_t most_bytes();

/// Bytes of the host's locked pages.
std::size_t locked_bytes();

}  // namespace longhaul::cuda::emulated
