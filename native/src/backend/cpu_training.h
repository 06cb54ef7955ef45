// Updates on the CPU.
#pragma once

#include "backend/cpu_device.h"
#include "pass/forest_pass.h"

namespace longhaul {

extern template class ForestPass<CpuDevice>;
using CpuTraining = ForestPass<CpuDevice>;

}  // namespace longhaul
