// The memory of a GPU that holding and training a policy takes.
#pragma once

#include "pass/plan/memory_plan.h"

namespace longhaul::cuda {

/// Bytes of the arrays of CudaBackend, DeviceCache and DeviceTraining. A device keeps no panels and steps where its arrays lie, so `panels`,
/// `next_policy` and `backward_panels` are 0. Few bytes are not counted: lists of a forest's chains, which depend on its shape.
MemoryPlan plan_device_memory(MemoryRequest request);

}  // namespace longhaul::cuda
