// Which device this process computes on.
// defines: make_chosen_backend, chosen_numerics
#pragma once

#include <memory>

#include "backend/backend.h"

namespace longhaul {

/// The backend that LONGHAUL_DEVICE names: `cpu` or `cuda` (and `emulated` in the tests' engine). Without it a GPU, if this program is
/// built for GPUs and there is one; else the CPU. A device is returned only if it gives its oracle's bits (`require_oracle_bits`). Throws
/// RequestError: DeviceUnavailable, DeviceDiffers.
std::unique_ptr<Backend> make_chosen_backend(ThreadPool& pool);

/// The numerics that LONGHAUL_NUMERICS names; without it those of fp32. Throws RequestError: DeviceUnavailable.
const Numerics& chosen_numerics();

}  // namespace longhaul
