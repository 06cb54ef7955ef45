// Writes a policy as a Hugging Face folder: a whole model, with adapters merged into its weights, or a PEFT adapter.
// defines: HfDtype, HfAdapters, HfExport, export_hf
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/policy.h"
#include "state/progress.h"
#include "state/safetensors.h"

namespace longhaul {

enum class HfDtype { f32, bf16 };

// `merged`: model.safetensors with W + (alpha / rank) · B·A. `peft`: adapter_config.json and adapter_model.safetensors beside the
// base's name. Without adapters both are the plain weights.
enum class HfAdapters { merged, peft };

struct HfExport {
  HfDtype dtype = HfDtype::f32;
  HfAdapters adapters = HfAdapters::merged;
  std::vector<std::int32_t> eos_tokens;
  // Name of the model under the adapters, for `base_model_name_or_path`; may be empty.
  std::string base_model;
  // model.safetensors is cut into shards with an index above this.
  std::uint64_t shard_bytes = std::uint64_t{4} << 30;
};

// All files, sorted by path. The folder is written beside its place and renamed, so it is there whole or not at
// all; one that is there already is refused. Needs no thread pool, so it may run beside generations.
// Throws std::system_error, and std::invalid_argument for a folder that exists.
std::vector<WrittenFile> export_hf(const Policy& policy, const std::string& folder, const HfExport& settings,
                                   const Progress& progress = {});

}  // namespace longhaul
