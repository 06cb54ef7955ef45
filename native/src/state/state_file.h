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

// Writes canonical bytes: equal states give equal files. `base`, the digest of the weights under the adapters, is required if there are
// adapters. Throws std::system_error.
WrittenFile save_state(const Policy& policy, const std::string& path, std::string_view base = {},
                       const Progress& progress = {});

// The header of a state file.
struct StateHeader {
  Architecture architecture;
  MomentFormat moments = MomentFormat::fp32;
  std::optional<LoraSettings> lora;
  // The digest of the weights under the adapters; empty without adapters.
  std::string base;
  std::int64_t optimizer_steps = 0;
};

// Reads only the header and checks the name, dtype, shape and place of every tensor, so that the memory of a load can be planned before
// anything is allocated. Throws as `load_state`.
StateHeader read_state_header(const std::string& path);

// Weights that adapters may be trained on, and their digest (empty: not computed yet).
struct BaseWeights {
  std::shared_ptr<const Weights> weights;
  std::string digest;
};

// A LoRA state was trained on other weights than the held ones. The message has both digests.
struct WrongBaseError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct LoadedState {
  std::unique_ptr<Policy> policy;
  std::string digest;   // of the tensors that were read
  std::string weights;  // digest of the model's weights without adapters
};

// Reads and hashes in one pass over the file, on all threads of the pool, because a restore should be as fast as the disk. `held`: the
// weights under a LoRA state; a state of full fine-tuning needs none.
// Throws WrongBaseError, std::system_error or SafetensorsError; each names the file and says what is wrong with it.
LoadedState load_state(const std::string& path, ThreadPool& pool, const BaseWeights& held = {},
                       const Progress& progress = {});

}  // namespace longhaul
