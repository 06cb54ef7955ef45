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

// What follows is described in emulated/tensor_core.h.

DEVICE unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

DEVICE void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

DEVICE void load_matrices(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

DEVICE void load_transposed_matrices(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

DEVICE void copy_async(void* shared, const void* global, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(there ? 16 : 0) : "memory");
}

DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int Groups>
DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

DEVICE unsigned bf16_pair(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace longhaul::cuda
