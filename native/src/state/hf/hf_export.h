// Writes a policy as a Hugging Face folder: either a whole model, with adapters merged into its weights, or a PEFT adapter.
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

// `merged`: model.safetensors with W + (alpha / rank) · B·A. `peft`: adapter_config.json, which names the base model, and
// adapter_model.safetensors. For a policy without adapters, both write the plain weights.
enum class HfAdapters { merged, peft };

struct HfExport {
  HfDtype dtype = HfDtype::f32;
  HfAdapters adapters = HfAdapters::merged;
  std::vector<std::int32_t> eos_tokens;
  // Name of the model under the adapters, for `base_model_name_or_path`; may be empty.
  std::string base_model;
  // If model.safetensors would be larger than this, it is cut into shards with an index.
  std::uint64_t shard_bytes = std::uint64_t{4} << 30;
};

// Returns all files, sorted by path. The folder is written under another name and then renamed, so it appears whole or not at all. An
// existing folder is refused. Needs no thread pool, so it may run beside generations.
// Throws std::system_error, and std::invalid_argument if the folder exists.
std::vector<WrittenFile> export_hf(const Policy& policy, const std::string& folder, const HfExport& settings,
                                   const Progress& progress = {});

}  // namespace longhaul
