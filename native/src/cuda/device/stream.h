// Streams, for the host. A stream runs its kernels and copies in order.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace longhaul::cuda {

/// The same type as cudaStream_t, without CUDA's headers. Null is refused: CUDA's default stream would wait for all others.
using Stream = CUstream_st*;

Stream make_stream();
void free_stream(Stream stream);

/// Returns when all launched kernels and copies are done. Throws the first error of one of them.
void device_sync();

/// The order in which the emulated device runs threads, warps and blocks from the next launch on. 0: in order, each until it waits; any
/// other seed: a random order of its own. Does nothing on a GPU.
void set_schedule(uint64_t seed);

}  // namespace longhaul::cuda
