// CUDA's vocabulary for the emulated device. Barriers and warp operations take the place of their call as a default argument: threads that
// meet must have come to the same one, and errors name it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda/device/emulated/barrier.h"
#include "cuda/device/emulated/block.h"
#include "cuda/device/emulated/launch.h"
#include "cuda/device/emulated/shared.h"
#include "cuda/device/emulated/tensor_core.h"
#include "cuda/device/emulated/types.h"
#include "cuda/device/emulated/warp.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

#define DEVICE static inline
#define UNROLL
#define UNROLL_BY(times)
/// Static shared memory: SHARED(float, tile, [16][17]).
#define SHARED(type, name, extent)                                                          \
  static ::longhaul::cuda::emulated::SharedSlot name##_slot;                                \
  using name##_type = type extent;                                                          \
  name##_type& name = *static_cast<name##_type*>(::longhaul::cuda::emulated::static_shared( \
      name##_slot, sizeof(name##_type), ::longhaul::cuda::emulated::Location::current()))
/// The launch's dynamic shared memory, as bytes aligned to 16 or more.
#define DYNAMIC_SHARED(name) unsigned char* const name = ::longhaul::cuda::emulated::block.dynamic_shared

#define threadIdx (::longhaul::cuda::emulated::current->thread_index)
#define blockIdx (::longhaul::cuda::emulated::block.index)
#define blockDim (::longhaul::cuda::emulated::block.size)
#define gridDim (::longhaul::cuda::emulated::block.grid)

inline void __syncthreads(std::source_location at = std::source_location::current()) { longhaul::cuda::emulated::block_barrier(at); }
inline void __syncwarp(unsigned mask = ~0u, std::source_location at = std::source_location::current()) {
  longhaul::cuda::emulated::warp_barrier(mask, at);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, std::source_location at = std::source_location::current()) {
  using namespace longhaul::cuda::emulated;
  return __builtin_bit_cast(T, shuffle(mask, __builtin_bit_cast(uint32_t, value), source, width, "__shfl_sync", at));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32, std::source_location at = std::source_location::current()) {
  using namespace longhaul::cuda::emulated;
  return __builtin_bit_cast(T, shuffle(mask, __builtin_bit_cast(uint32_t, value), lane() ^ distance, width, "__shfl_xor_sync", at));
}
/// A lane without a lane so far behind it keeps its value.
template <class T>
T __shfl_down_sync(unsigned mask, T value, int distance, int width = 32, std::source_location at = std::source_location::current()) {
  using namespace longhaul::cuda::emulated;
  const int source = lane() + distance < warp_lanes ? lane() + distance : lane();
  return __builtin_bit_cast(T, shuffle(mask, __builtin_bit_cast(uint32_t, value), source, width, "__shfl_down_sync", at));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, std::source_location at = std::source_location::current()) {
  return longhaul::cuda::emulated::ballot(mask, predicate, at);
}

inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline int __float2int_rn(float x) { return int(std::nearbyintf(x)); }

namespace longhaul::cuda {

/// A vector from an address that is a multiple of its size, in one access. A GPU would trap at any other address.
template <class Vector>
inline Vector load(const void* p, emulated::Location at = emulated::Location::current()) {
  emulated::require_aligned(p, sizeof(Vector), "load", at);
  return *static_cast<const Vector*>(p);
}

/// Writes a vector to an address that is a multiple of its size, in one access.
template <class Vector>
inline void store(void* p, Vector v, emulated::Location at = emulated::Location::current()) {
  emulated::require_aligned(p, sizeof(Vector), "store", at);
  *static_cast<Vector*>(p) = v;
}

}  // namespace longhaul::cuda
