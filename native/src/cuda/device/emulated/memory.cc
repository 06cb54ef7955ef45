// Streams and memory of the emulated device, which is the host's.
#include "cuda/device/memory.h"
#include "cuda/device/properties.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "cuda/device/emulated/block.h"

namespace longhaul::cuda {

Stream make_stream() { return reinterpret_cast<Stream>(new char); }

void free_stream(Stream stream) { delete reinterpret_cast<char*>(stream); }

bool has_device() { return true; }

void require_usable_device() {}

std::size_t device_free_bytes() { return std::numeric_limits<std::size_t>::max(); }

DeviceProperties device_properties() { return {"emulated", "emulated device", std::size_t(sysconf(_SC_PHYS_PAGES)) * std::size_t(sysconf(_SC_PAGESIZE))}; }

void device_sync() {}

void* allocate_device_bytes(size_t bytes) {
  void* p = nullptr;
  // Of just this size, so that the address sanitizer sees the first byte behind it.
  if (posix_memalign(&p, 256, bytes) != 0) throw std::bad_alloc();
  if (bytes) std::memset(p, 0xFF, bytes);
  return p;
}

void free_device_bytes(void* p) { std::free(p); }

void copy_device_bytes(void* to, const void* from, size_t bytes, Stream stream) {
  if (!stream) throw emulated::Error("device_copy on a null stream; make_stream() gives one");
  if (bytes) std::memmove(to, from, bytes);
}

void zero_device_bytes(void* p, size_t bytes, Stream stream) {
  if (!stream) throw emulated::Error("device_zero on a null stream; make_stream() gives one");
  if (bytes) std::memset(p, 0, bytes);
}

}  // namespace longhaul::cuda
