// JSON of the settings that the digests cover besides a model's tensors. The protocol, run specs and our files' metadata use the same keys.
// defines: architecture_json, architecture_from_json, lora_json, lora_from_json, moment_format_from
#pragma once

#include <string_view>

#include "model/adapters.h"
#include "model/architecture.h"
#include "model/moments.h"
#include "wire/json.h"

namespace longhaul {

// Every key of Architecture. `yarn` {factor, original_max_position_embeddings, beta_fast, beta_slow, attention_factor} only if it is set.
Json architecture_json(const Architecture& architecture);

// Optional: `model_type` (default qwen3) and, in `yarn`, everything but factor and original_max_position_embeddings.
// Throws std::invalid_argument that names the key, its value and what it must be. An unknown key is refused.
Architecture architecture_from_json(const Json& value);

// {rank, alpha, targets: ["q_proj", …]}, targets in the order of LoraTarget.
Json lora_json(const LoraSettings& settings);

// `targets` may be in any order. A key `seed` is ignored here (the caller reads it); any other unknown key is refused.
// Throws std::invalid_argument as above. `validate` checks the settings against the architecture.
LoraSettings lora_from_json(const Json& value);

// "fp32" or "int8"; throws std::invalid_argument.
MomentFormat moment_format_from(std::string_view text);

}  // namespace longhaul
