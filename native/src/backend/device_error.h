// Errors of a device.
#pragma once

#include <stdexcept>

namespace longhaul {

/// The device cannot be used by this process any more: its memory may be lost. The process ends, and its supervisor starts another.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The device has computed another value than the CPU: nothing that it computes can be trusted.
struct WrongValue : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace longhaul
