// A Hugging Face `config.json`, with the keys of transformers 4 (`rope_theta`, `rope_scaling`, `torch_dtype`) and 5 (`rope_parameters`,
// `dtype`).
// defines: HfError, HfConfig, parse_hf_config, parse_eos_tokens, eos_json, hf_config_json
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "wire/json.h"

namespace longhaul {

// A model that cannot be read. The message names the file, the key or the tensor, what was found and what was expected.
struct HfError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct HfConfig {
  Architecture architecture;
  // The tokens of `eos_token_id`. If generation_config.json has that key, its value wins.
  std::vector<std::int32_t> eos_tokens;
};

// Parses the text of a config.json. Keys for which transformers has a default may be missing. Throws HfError without the file's name.
HfConfig parse_hf_config(std::string_view text);

// `eos_token_id` of a config.json or generation_config.json: a number, a list, or missing (an empty result). Throws HfError.
std::vector<std::int32_t> parse_eos_tokens(const Json& config);

// The value of `eos_token_id`: a number for one token, a list for several.
Json eos_json(std::span<const std::int32_t> eos_tokens);

// A config.json that transformers 4 and 5 read in the same way; `dtype` is "float32" or "bfloat16".
Json hf_config_json(const Architecture& architecture, std::span<const std::int32_t> eos_tokens, std::string_view dtype);

}  // namespace longhaul
