// Turns the fields of a request into settings of a policy, of sampling and of an update. A wrong field throws a
// RequestError that names it.
// defines: read_tokens, read_key, read_temperature, TrainedAs, read_trained, read_loss, read_update_settings
#pragma once

#include <optional>

#include "base/philox.h"
#include "model/policy.h"
#include "serve/protocol/request.h"
#include "train/update.h"

namespace longhaul {

// Array `tokens`; every token is in the policy's vocabulary.
std::vector<std::int32_t> read_tokens(const Request& request, const Policy& policy);
SamplingKey read_key(const Json& key);
double read_temperature(const Request& request);

// The trained part of a model, and how its moments are kept.
struct TrainedAs {
  std::optional<LoraSettings> lora;
  std::uint64_t lora_seed = 0;
  MomentFormat moments = MomentFormat::fp32;
};

// Fields `lora` and `moments`; both are optional.
TrainedAs read_trained(const Request& request);

LossSettings read_loss(const Json& loss);
// All settings except `passes`, `reference`, `cancelled`, `progress` and `advanced`.
UpdateSettings read_update_settings(const Request& request);

}  // namespace longhaul
