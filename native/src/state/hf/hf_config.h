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

// A model that cannot be read: names the file, the key or the tensor, what was found and what was expected.
struct HfError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct HfConfig {
  Architecture architecture;
  // `eos_token_id`; generation_config.json, where it has one, comes before it.
  std::vector<std::int32_t> eos_tokens;
};

// The text of a config.json. Throws HfError, without the file's name. A key that transformers has a default for may be left out.
HfConfig parse_hf_config(std::string_view text);

// `eos_token_id` of a config.json or generation_config.json: a number, a list, or none of either. Throws HfError.
std::vector<std::int32_t> parse_eos_tokens(const Json& config);

// As `eos_token_id` has them: one as a number, several as a list.
Json eos_json(std::span<const std::int32_t> eos_tokens);

// A config.json that transformers 4 and 5 read alike; `dtype` is "float32" or "bfloat16".
Json hf_config_json(const Architecture& architecture, std::span<const std::int32_t> eos_tokens, std::string_view dtype);

}  // namespace longhaul
