// What the sanitizers must know of fibers. Each CUDA thread is a thread of its own to the thread sanitizer, and only barriers and the end
// of the launch order its accesses; so a missing barrier is a data race, whatever the schedule was.
#pragma once

#include <cstddef>

#if defined(LONGHAUL_ADDRESS_CHECK)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(LONGHAUL_RACE_CHECK)
#include <sanitizer/tsan_interface.h>
extern "C" void AnnotateBenignRaceSized(const char* file, int line, const volatile void* at, size_t bytes, const char* what);
#endif

namespace longhaul::cuda::emulated {

#if defined(LONGHAUL_ADDRESS_CHECK)
constexpr bool address_check = true;
inline void forbid_access(void* p, size_t bytes) { ASAN_POISON_MEMORY_REGION(p, bytes); }
inline void allow_access(void* p, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(p, bytes); }
#else
constexpr bool address_check = false;
inline void forbid_access(void*, size_t) {}
inline void allow_access(void*, size_t) {}
#endif

#if defined(LONGHAUL_RACE_CHECK)
constexpr bool race_check = true;
/// What this thread did before `release(object)`, another one's accesses after `acquire(object)` see.
inline void release(void* object) { __tsan_release(object); }
inline void acquire(void* object) { __tsan_acquire(object); }
#else
constexpr bool race_check = false;
inline void release(void*) {}
inline void acquire(void*) {}
#endif

/// Fills memory with bytes 0xFF: NaN, as float. Not by memset, which a thread sanitizer would take for the kernel's access.
inline void fill_with_nan(void* p, size_t bytes) { asm volatile("rep stosb" : "+D"(p), "+c"(bytes) : "a"(0xFF) : "memory"); }

}  // namespace longhaul::cuda::emulated
