// What the device is.
#pragma once

#include <cstddef>
#include <string>

namespace longhaul::cuda {

struct DeviceProperties {
  std::string kind;  // "cuda" or "emulated"
  std::string name;
  std::size_t memory_bytes = 0;
};

/// Empty if a driver offers a device of compute capability 8.0 or newer, free or not; else what is wrong and how to mend it.
std::string device_absence();

struct DeviceMemory {
  /// Bytes: what can still be allocated on the device, and what this process has allocated.
  std::size_t free = 0, allocated = 0;
};

DeviceMemory device_memory();

/// Bytes of shared memory that a block of threads may ask for.
std::size_t most_shared_bytes();

/// Throws std::runtime_error that says what is wrong and how to mend it: no driver, one too old, no visible GPU, one below compute
/// capability 8.0 or in the exclusive use of another process.
void require_usable_device();

/// Throws std::runtime_error if there is no device or driver.
DeviceProperties device_properties();

}  // namespace longhaul::cuda
