// The state digest: a tree hash over weights, moments and the optimizer's count (docs/engine-protocol.md, "The state").
// defines: state_digest, architecture_json, architecture_from_json
#pragma once

#include <string>

#include "base/thread_pool.h"
#include "model/policy.h"
#include "wire/json.h"

namespace longhaul {

// Lower-case hex. The leaves are hashed in parallel.
std::string state_digest(const Policy& policy, ThreadPool& pool);

Json architecture_json(const Architecture& architecture);

// Throws std::invalid_argument that names the key.
Architecture architecture_from_json(const Json& value);

}  // namespace longhaul
