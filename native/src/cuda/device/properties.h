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

/// Throws std::runtime_error if there is no device or driver.
DeviceProperties device_properties();

}  // namespace longhaul::cuda
