// The vocabulary of kernels under nvcc: CUDA's own, and the few macros in which the emulated device differs.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "backend/device_error.h"
#include "cuda/device/stream.h"

#define DEVICE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
/// The loop is unrolled `times` times at most, which bounds the registers that it takes.
#define UNROLL_BY(times) LONGHAUL_PRAGMA(unroll times)
#define LONGHAUL_PRAGMA(text) _Pragma(#text)
/// Static shared memory: SHARED(float, tile, [16][17]).
#define SHARED(type, name, extent) __shared__ type name extent
/// The launch's dynamic shared memory, as bytes aligned to 16.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

namespace longhaul::cuda {

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw DeviceError(std::string(what) + ": " + cudaGetErrorString(error));
}

/// Starts `kernel` on the stream. `shared_bytes` is the size of its dynamic shared memory.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, Stream stream, Arguments... arguments) {
  if (!stream) throw std::runtime_error("launch on a null stream");
  // A kernel must ask for more than 48 KiB.
  if (shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)), "dynamic shared memory");
  kernel<<<grid, block, shared_bytes, stream>>>(Parameters(arguments)...);
  check(cudaGetLastError(), "launch");
}

/// A vector from an address that is a multiple of its size, in one access.
template <class Vector>
DEVICE Vector load(const void* p) {
  return *static_cast<const Vector*>(p);
}

/// Writes a vector to an address that is a multiple of its size, in one access.
template <class Vector>
DEVICE void store(void* p, Vector v) {
  *static_cast<Vector*>(p) = v;
}

}  // namespace longhaul::cuda
