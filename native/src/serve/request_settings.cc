#include "serve/request_settings.h"

namespace longhaul {

std::vector<std::int32_t> read_tokens(const Request& request, const Policy& policy) {
  std::vector<std::int32_t> tokens = request.tokens();
  const int vocab = policy.architecture().vocab_size;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      throw RequestError("BadInput", "tokens[" + std::to_string(i) + "] is " + std::to_string(tokens[i]) +
                                         "; the vocabulary has " + std::to_string(vocab));
    }
  }
  return tokens;
}

SamplingKey read_key(const Json& key) {
  SamplingKey result;
  result.seed = static_cast<std::uint64_t>(whole_of(key, "key", "seed", 0, std::int64_t{1} << 53));
  const Json* domain = key.find("domain");
  const std::string* name = domain == nullptr ? nullptr : domain->string();
  if (name != nullptr && *name == "train") {
    result.domain = PhiloxDomain::train;
  } else if (name != nullptr && *name == "eval") {
    result.domain = PhiloxDomain::eval;
  } else {
    throw RequestError("BadInput", "key.domain must be train or eval");
  }
  constexpr std::int64_t most = 0xFFFFFFFF;
  result.step = static_cast<std::uint32_t>(whole_of(key, "key", "step", 0, most));
  result.slot = static_cast<std::uint32_t>(whole_of(key, "key", "slot", 0, most));
  result.sample = static_cast<std::uint32_t>(whole_of(key, "key", "sample", 0, most));
  return result;
}

double read_temperature(const Request& request) {
  const double temperature = request.number("temperature");
  if (!(temperature > 0) || temperature > 1000) throw RequestError("BadInput", "temperature must be above 0 and at most 1000");
  return temperature;
}

UpdateSettings read_update_settings(const Request& request) {
  UpdateSettings settings;
  settings.learning_rates = request.numbers("learning_rates");
  if (settings.learning_rates.empty()) throw RequestError("BadInput", "learning_rates must have one entry a mini-batch");
  const std::vector<double> betas = request.numbers("adam_betas");
  if (betas.size() != 2) throw RequestError("BadInput", "adam_betas must have two entries");
  settings.beta1 = betas[0];
  settings.beta2 = betas[1];
  settings.adam_eps = request.number("adam_eps");
  settings.weight_decay = request.number("weight_decay");
  settings.max_grad_norm = request.number("max_grad_norm");
  settings.reset_moments = request.flag("reset_moments");
  settings.temperature = read_temperature(request);
  const Json& loss = request.field("loss");
  const Json* kind = loss.find("kind");
  const std::string* name = kind == nullptr ? nullptr : kind->string();
  if (name != nullptr && *name == "cross_entropy") {
    settings.loss.kind = LossKind::cross_entropy;
  } else if (name != nullptr && *name == "clipped_policy") {
    settings.loss.kind = LossKind::clipped_policy;
    settings.loss.eps_clip_low = number_of(loss, "loss", "eps_clip_low");
    settings.loss.eps_clip_high = number_of(loss, "loss", "eps_clip_high");
  } else {
    throw RequestError("BadInput", "loss.kind must be cross_entropy or clipped_policy");
  }
  return settings;
}

}  // namespace longhaul
