// The memory that a CPU takes.
#pragma once

#include "pass/plan/memory_plan.h"

namespace longhaul {

/// A CPU packs weights into panels, and keeps the next policy beside the held one. In bf16 it also has a rounded copy of each policy, and two
/// more sums of each gradient (ShardedSums).
MemoryPlan plan_memory(const MemoryRequest& request, ops::Arithmetic arithmetic = ops::Arithmetic::fp32);

}  // namespace longhaul
