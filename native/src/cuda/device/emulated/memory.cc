// Streams and memory of the emulated device; its memory is the host's.
#include "cuda/device/memory.h"
#include "cuda/device/properties.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <numeric>
#include <vector>

#include "cuda/device/emulated/allocations.h"
#include "cuda/device/emulated/block.h"
#include "base/process_memory.h"

namespace longhaul::cuda {

namespace {

std::atomic<std::size_t> allocated{0}, most{0};

struct Allocation {
  void* p;
  std::size_t bytes;
};

// (Never destroyed, since arrays may be freed while the process ends.)
auto& allocations_lock = *new std::mutex;
auto& allocations = *new std::vector<Allocation>;
auto& locked_pages = *new std::vector<Allocation>;  // of the host

}  // namespace

namespace emulated {

void start_counting() { most = allocated.load(); }

std::size_t most_bytes() { return most; }

void* newest_of(std::size_t bytes) {
  const std::lock_guard lock(allocations_lock);
  const auto found = std::find_if(allocations.rbegin(), allocations.rend(), [&](const Allocation& one) { return one.bytes == bytes; });
  return found == allocations.rend() ? nullptr : found->p;
}

std::size_t locked_bytes() {
  const std::lock_guard lock(allocations_lock);
  return std::accumulate(locked_pages.begin(), locked_pages.end(), std::size_t{0}, [](std::size_t sum, const Allocation& one) { return sum + one.bytes; });
}

}  // namespace emulated

Stream make_stream() { return reinterpret_cast<Stream>(new char); }

void free_stream(Stream stream) { delete reinterpret_cast<char*>(stream); }

std::string device_absence() { return ""; }

void require_usable_device() {}

std::size_t most_shared_bytes() { return 227 * 1024; }

DeviceMemory device_memory() {
  return {available_memory(), allocated};
}

DeviceProperties device_properties() { return {"emulated", "emulated device", std::size_t(sysconf(_SC_PHYS_PAGES)) * std::size_t(sysconf(_SC_PAGESIZE))}; }

void device_sync() {}

void* allocate_device_bytes(size_t bytes) {
  void* p = nullptr;
  // Exactly this size, so that the address sanitizer notices an access to the first byte after it.
  if (posix_memalign(&p, 256, bytes) != 0) throw std::bad_alloc();
  if (bytes) std::memset(p, 0xFF, bytes);
  const std::size_t now = allocated += malloc_usable_size(p);
  for (std::size_t before = most; before < now && !most.compare_exchange_weak(before, now);) {
  }
  const std::lock_guard lock(allocations_lock);
  allocations.push_back({p, bytes});
  return p;
}

void free_device_bytes(void* p) {
  allocated -= malloc_usable_size(p);
  {
    const std::lock_guard lock(allocations_lock);
    std::erase_if(allocations, [&](const Allocation& one) { return one.p == p; });
  }
  std::free(p);
}

void copy_device_bytes(void* to, const void* from, size_t bytes, Stream stream) {
  if (!stream) throw emulated::Error("device_copy on a null stream; make_stream() gives one");
  if (bytes) std::memmove(to, from, bytes);
}

bool lock_host_pages(void* data, size_t bytes) noexcept {
  const std::lock_guard lock(allocations_lock);
  locked_pages.push_back({data, bytes});
  return true;
}

void unlock_host_pages(void* data) noexcept {
  const std::lock_guard lock(allocations_lock);
  std::erase_if(locked_pages, [&](const Allocation& one) { return one.p == data; });
}

void zero_device_bytes(void* p, size_t bytes, Stream stream) {
  if (!stream) throw emulated::Error("device_zero on a null stream; make_stream() gives one");
  if (bytes) std::memset(p, 0, bytes);
}

}  // namespace longhaul::cuda
