// Saves and loads `state.safetensors` (docs/engine-protocol.md, "The state").
// defines: save_state, LoadedState, load_state
#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "model/policy.h"
#include "state/safetensors.h"

namespace longhaul {

// Canonical bytes: equal states give equal files. Throws std::system_error.
WrittenFile save_state(const Policy& policy, const std::string& path);

struct LoadedState {
  std::unique_ptr<Policy> policy;
  std::string digest;  // of what was read
};

// Reads and hashes in one pass over the file, on all threads of the pool: a restore is to be as fast as the disk.
// Throws std::system_error, SafetensorsError or std::invalid_argument; each says what is wrong with the file.
LoadedState load_state(const std::string& path, ThreadPool& pool);

}  // namespace longhaul
