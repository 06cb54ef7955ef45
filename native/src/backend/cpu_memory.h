// The memory that a CPU takes.
#pragma once

#include "pass/plan/memory_plan.h"

namespace longhaul {

/// A CPU packs weights into panels, and keeps the next policy beside the held one.
MemoryPlan plan_memory(const MemoryRequest& request);

}  // namespace longhaul
