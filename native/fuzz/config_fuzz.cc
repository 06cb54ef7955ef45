// Fuzzes the readers of model descriptions: config.json of a Hugging Face folder, generation_config.json, and the
// architecture and adapters in requests and in our own files. Each input gives either a valid description, which can be
// written and read again, or one error.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fuzz.h"
#include "model/parameters.h"
#include "state/hf/hf_config.h"
#include "state/identity.h"
#include "wire/json.h"

using namespace longhaul;

namespace {

void hold(const Architecture& architecture) {
  validate(architecture);  // throws if the parsed architecture is not valid
  MUST(architecture_from_json(architecture_json(architecture)) == architecture);
}

void read_config(std::string_view text) {
  HfConfig config;
  try {
    config = parse_hf_config(text);
  } catch (const HfError& error) {
    MUST(error.what()[0] != '\0');
    return;
  }
  hold(config.architecture);
  const Json written = hf_config_json(config.architecture, config.eos_tokens, "float32");
  const HfConfig again = parse_hf_config(write_json(written));
  MUST(again.architecture == config.architecture && again.eos_tokens == config.eos_tokens);
}

void read_identity(const Json& json, bool lora) {
  try {
    if (lora) {
      const LoraSettings settings = lora_from_json(json);
      MUST(lora_from_json(lora_json(settings)) == settings);
    } else {
      hold(architecture_from_json(json));
    }
  } catch (const std::invalid_argument& error) {
    MUST(error.what()[0] != '\0');
  }
}

void read_eos(const Json& json) {
  try {
    parse_eos_tokens(json);
  } catch (const HfError& error) {
    MUST(error.what()[0] != '\0');
  }
}

}  // namespace

// The first byte says which kind of text follows.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'c') {
    read_config(text);
    return 0;
  }
  std::string error;
  const auto json = parse_json(text, error);
  if (!json) return 0;
  if (data[0] == 'e') read_eos(*json);
  if (data[0] == 'a') read_identity(*json, false);
  if (data[0] == 'l') read_identity(*json, true);
  return 0;
}
