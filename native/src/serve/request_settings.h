// What the fields of a request mean to a policy, to sampling and to an update; a wrong one is a RequestError that names it.
// defines: read_tokens, read_key, read_temperature, read_update_settings
#pragma once

#include "base/philox.h"
#include "model/policy.h"
#include "serve/request.h"
#include "train/update.h"

namespace longhaul {

// Array `tokens`, all in the policy's vocabulary.
std::vector<std::int32_t> read_tokens(const Request& request, const Policy& policy);
SamplingKey read_key(const Json& key);
double read_temperature(const Request& request);
// Without `cancelled`, `progress` and `advanced`.
UpdateSettings read_update_settings(const Request& request);

}  // namespace longhaul
