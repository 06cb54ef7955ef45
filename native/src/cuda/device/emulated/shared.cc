#include "cuda/device/emulated/shared.h"

#include <cstdlib>
#include <new>
#include <vector>

#include "cuda/device/emulated/sanitizer.h"

namespace longhaul::cuda::emulated {
namespace {

constexpr size_t alignment = 128;
// A gap between two slots, so that the address sanitizer notices an overrun into the next slot.
constexpr size_t gap = address_check ? 32 : 0;
constexpr size_t static_capacity = most_static_shared + 1024 * gap;

constexpr size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Dynamic memory, then static.
struct Memory {
  unsigned char* data;
  size_t bytes;
};
std::vector<Memory> memories;

void allocate_memory() {
  const size_t dynamic = rounded(block.dynamic_bytes + gap, alignment), bytes = dynamic + static_capacity;
  void* data = std::aligned_alloc(alignment, rounded(bytes, alignment));
  if (!data) throw std::bad_alloc();
  memories.push_back({static_cast<unsigned char*>(data), bytes});
}

}  // namespace

void start_shared() {
  // The next block reuses a block's memory; not in a check for races, where accesses of two blocks would look like a race.
  if (memories.empty() || race_check) allocate_memory();
  const Memory& memory = memories.back();
  block.dynamic_shared = memory.data;
  block.static_shared = memory.data + rounded(block.dynamic_bytes + gap, alignment);
  block.static_used = block.static_bytes = 0;
  ++block.generation;
  forbid_access(memory.data, memory.bytes);
  allow_access(block.dynamic_shared, block.dynamic_bytes);
  fill_with_nan(block.dynamic_shared, block.dynamic_bytes);
}

void end_shared() {
  for (const Memory& memory : memories) {
    allow_access(memory.data, memory.bytes);
    std::free(memory.data);
  }
  memories.clear();
}

void* static_shared(SharedSlot& slot, size_t bytes, Location location) {
  if (slot.generation == block.generation) return slot.data;
  require_kernel("SHARED", location);
  const size_t used = block.static_used + rounded(bytes, 16);
  block.static_bytes += rounded(bytes, 16);
  if (block.static_bytes > most_static_shared || used > static_capacity)
    fail("SHARED " + text_of(location) + ": more than 48 KiB of static shared memory");
  if (block.static_bytes + block.dynamic_bytes > most_shared)
    fail("SHARED " + text_of(location) + ": more than 227 KiB of static and dynamic shared memory");
  slot.generation = block.generation;
  slot.data = block.static_shared + block.static_used;
  block.static_used = used + gap;
  allow_access(slot.data, bytes);
  fill_with_nan(slot.data, bytes);
  return slot.data;
}

}  // namespace longhaul::cuda::emulated
