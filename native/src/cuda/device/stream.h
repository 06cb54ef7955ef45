// Streams, for the host. A stream runs its kernels and copies in order.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace longhaul::cuda {

/// The same type as cudaStream_t, without CUDA's headers. Null is refused: CUDA's default stream would wait for all others.
using Stream = CUstream_st*;

Stream make_stream();
void free_stream(Stream stream);

/// A stream that lives as long as this.
class OwnedStream {
 public:
  OwnedStream() : stream_(make_stream()) {}
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  ~OwnedStream() { free_stream(stream_); }
  operator Stream() const { return stream_; }

 private:
  Stream stream_;
};

/// Returns when all launched kernels and copies are done. Throws the first error of one of them.
void device_sync();

/// The order in which the emulated device runs threads, warps and blocks from the next launch on. 0: in order, each until it waits; any
/// other seed: a random order of its own. Does nothing on a GPU.
void set_schedule(uint64_t seed);

}  // namespace longhaul::cuda
