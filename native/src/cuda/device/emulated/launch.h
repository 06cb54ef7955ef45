// Launching a kernel on the emulated device: it has run when `launch` returns.
#pragma once

#include <concepts>

#include "cuda/device/emulated/block.h"
#include "cuda/device/stream.h"

namespace longhaul::cuda {

namespace emulated {

/// A stream and the place of the launch, which a default argument finds where the stream is passed.
struct LaunchStream {
  Stream stream;
  Location location;
  template <std::convertible_to<Stream> S>
  LaunchStream(const S& stream, Location location = Location::current()) : stream(stream), location(location) {}
};

/// Runs `body(argument)` as each thread of each block. Throws an Error where a kernel breaks a rule. One grid runs at a time: a launch from
/// another OS thread waits, one from within a kernel fails.
void run_grid(dim3 grid, dim3 size, size_t shared_bytes, const LaunchStream& stream, void (*body)(void*), void* argument);

}  // namespace emulated

/// Runs `kernel` on the stream. `shared_bytes` is the size of its dynamic shared memory.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, emulated::LaunchStream stream,
            Arguments... arguments) {
  auto thread = [&] { kernel(Parameters(arguments)...); };
  emulated::run_grid(
      grid, block, shared_bytes, stream, [](void* p) { (*static_cast<decltype(thread)*>(p))(); }, &thread);
}

}  // namespace longhaul::cuda
