// Saves and loads `state.safetensors` (docs/engine-protocol.md, "The state").
// defines: save_state, StateHeader, read_state_header, BaseWeights, WrongBaseError, LoadedState, load_state
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/thread_pool.h"
#include "model/policy.h"
#include "state/progress.h"
#include "state/safetensors.h"

namespace longhaul {

// Canonical bytes: equal states give equal files. `base`: the digest of the weights under the adapters, needed if there are any. Throws
// std::system_error.
WrittenFile save_state(const Policy& policy, const std::string& path, std::string_view base = {},
                       const Progress& progress = {});

// What a state file says about itself.
struct StateHeader {
  Architecture architecture;
  MomentFormat moments = MomentFormat::fp32;
  std::optional<LoraSettings> lora;
  // The digest of the weights under the adapters; empty without.
  std::string base;
  std::int64_t optimizer_steps = 0;
};

// Reads the header alone and holds every tensor's name, dtype, shape and place to what it says: what a load would take can be
// planned before anything is allocated. Throws as `load_state`.
StateHeader read_state_header(const std::string& path);

// Weights that adapters may be trained on, and their digest (empty: not computed yet).
struct BaseWeights {
  std::shared_ptr<const Weights> weights;
  std::string digest;
};

// A LoRA state lies on other weights than the ones that are held. The message has both digests.
struct WrongBaseError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct LoadedState {
  std::unique_ptr<Policy> policy;
  std::string digest;   // of what was read
  std::string weights;  // digest of the model's weights without adapters
};

// Reads and hashes in one pass over the file, on all threads of the pool: a restore is to be as fast as the disk. `held`: the
// weights under a LoRA state; one of full fine-tuning needs none.
// Throws WrongBaseError, std::system_error or SafetensorsError; each names the file and says what is wrong with it.
LoadedState load_state(const std::string& path, ThreadPool& pool, const BaseWeights& held = {},
                       const Progress& progress = {});

}  // namespace longhaul
