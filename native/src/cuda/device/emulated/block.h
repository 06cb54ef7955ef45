// The emulated device's state: the block that runs, its warps and its threads.
//
// Blocks run one after another, each CUDA thread of a block as a fiber (a stack of its own on the launching OS thread). A fiber runs until
// it waits at a barrier or a warp operation. Nothing here is tracked by a thread sanitizer, since an exchange between lanes is not the
// kernel's own memory traffic: the files of this folder are compiled without it, and headers only read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>

#include "cuda/device/emulated/types.h"

namespace longhaul::cuda::emulated {

using Location = std::source_location;

/// A kernel or a launch broke a rule.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr int warp_lanes = 32, most_threads = 1024, most_warps = most_threads / warp_lanes;
/// Shared memory of a block on an H100: static; static and dynamic together.
constexpr size_t most_static_shared = 48 * 1024, most_shared = 227 * 1024;

enum class State : uint8_t { ready, at_block_barrier, at_warp_operation, exited };

struct Warp;

/// A CUDA thread, or the thread that launched the grid.
struct alignas(128) Fiber {
  void* stack_pointer = nullptr;  // while it does not run
  dim3 thread_index;
  Warp* warp = nullptr;
  int lane = 0;
  int position = 0;  // the warp's `order[position]` is its lane
  State state = State::ready;
  const char* operation = "";  // the barrier or warp operation at which it waits
  Location location;
  char* stack = nullptr;
  size_t stack_bytes = 0;
  void* sanitizer = nullptr;  // the sanitizer's own record of this fiber
  size_t block_barriers = 0, warp_barriers = 0;
};

struct Warp {
  Fiber* lanes[warp_lanes];
  uint8_t order[warp_lanes];  // in which its lanes run
  uint32_t ready = 0;         // a bit for each position
  int index = 0;              // its position in the block's order of warps
  int arrived = 0;            // lanes at the present warp operation, which is:
  const char* operation = "";
  Location location;
  uint32_t value[warp_lanes], source[warp_lanes], result[warp_lanes];
  uint32_t operands[warp_lanes][6];  // of tensor_core.h, and the sums
  float sums[warp_lanes][4];
  char sync_object[2];  // their addresses stand for `__syncwarp` at a thread sanitizer, even and odd calls
};

struct Block {
  dim3 grid, size, index;
  int threads = 0, warp_count = 0;
  uint64_t seed = 0, random = 1;
  Location launched;
  Fiber launcher;
  Fiber* fibers = nullptr;
  Warp* warps = nullptr;
  int warp_order[most_warps];

  int exited = 0;
  int arrived = 0;  // threads at the present `__syncthreads`, which is at:
  Location location;

  size_t dynamic_bytes = 0, static_bytes = 0;  // of shared memory
  unsigned char *dynamic_shared = nullptr, *static_shared = nullptr;
  size_t static_used = 0;
  uint64_t generation = 0;  // counts blocks

  void (*body)(void*) = nullptr;
  void* body_argument = nullptr;
  std::string error;
  char sync_object[2], exit_object;
};

/// One grid runs at a time in a process.
extern Block block;
/// The thread that runs.
extern Fiber* current;

std::string text_of(Location location);
std::string text_of(dim3 index);

/// Throws an Error that adds the thread, the block, the seed and the place of the launch. It ends the launch.
[[noreturn]] void fail(const std::string& what);

/// Fails unless a kernel's thread runs.
void require_kernel(const char* operation, Location location);

/// Fails with the place of the access.
[[noreturn]] void fail_misaligned(const char* operation, Location location);

inline void require_aligned(const void* p, size_t bytes, const char* operation, Location location) {
  if (reinterpret_cast<uintptr_t>(p) % bytes) fail_misaligned(operation, location);
}

}  // namespace longhaul::cuda::emulated
