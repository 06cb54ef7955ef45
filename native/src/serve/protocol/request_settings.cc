#include "serve/protocol/request_settings.h"

#include <string_view>
#include <vector>

#include "state/identity.h"

namespace longhaul {
namespace {

constexpr std::int64_t most_seed = std::int64_t{1} << 53;

// Returns the choice whose name(choice) is the field's text.
template <class T, std::size_t N>
T choice_of(const Json& object, const char* where, const char* key, const T (&choices)[N]) {
  const std::string text = text_of(object, where, key);
  std::string list;
  for (const T choice : choices) {
    if (text == name(choice)) return choice;
    list += (list.empty() ? "" : ", ") + std::string(name(choice));
  }
  throw RequestError("BadInput", std::string(where) + "." + key + " is \"" + text + "\"; it must be one of " + list);
}

}  // namespace

std::vector<std::int32_t> read_tokens(const Request& request, const Policy& policy) {
  std::vector<std::int32_t> tokens = request.i32_array("tokens");
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
  result.seed = static_cast<std::uint64_t>(whole_of(key, "key", "seed", 0, most_seed));
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

TrainedAs read_trained(const Request& request) {
  TrainedAs trained;
  if (request.has("lora")) {
    const Json& lora = request.field("lora");
    trained.lora = lora_from_json(lora);
    trained.lora_seed = static_cast<std::uint64_t>(whole_of(lora, "lora", "seed", 0, most_seed));
  }
  if (request.has("moments")) trained.moments = moment_format_from(request.text("moments"));
  return trained;
}

// All settings of the loss kind must be present, and no others. A further term needs both its weight and its settings.
LossSettings read_loss(const Json& loss) {
  LossSettings settings;
  std::vector<std::string_view> known{"kind", "reduction"};
  const auto has = [&](const char* key) {
    known.push_back(key);
    return loss.find(key) != nullptr;
  };
  const auto number = [&](const char* key) {
    known.push_back(key);
    return number_of(loss, "loss", key);
  };
  settings.kind = choice_of(loss, "loss", "kind", loss_kinds);
  settings.reduction = choice_of(loss, "loss", "reduction", loss_reductions);
  if (settings.reduction == LossReduction::seq_mean_token_sum_norm) {
    known.push_back("max_seq_len");
    settings.max_seq_len = static_cast<int>(whole_of(loss, "loss", "max_seq_len", 1, 1 << 30));
  }
  if (clips_ratio(settings.kind)) {
    settings.eps_clip_low = number("eps_clip_low");
    settings.eps_clip_high = number("eps_clip_high");
  }
  if (settings.kind == LossKind::dual_clip) settings.clip_ratio_c = number("clip_ratio_c");
  if (settings.kind == LossKind::cispo) {
    settings.cispo_eps_clip_low = number("cispo_eps_clip_low");
    settings.cispo_eps_clip_high = number("cispo_eps_clip_high");
  }
  if (settings.kind == LossKind::sapo) {
    settings.sapo_tau_pos = number("sapo_tau_pos");
    settings.sapo_tau_neg = number("sapo_tau_neg");
  }
  if (has("kl_weight")) {
    settings.kl_weight = number("kl_weight");
    known.push_back("kl_estimator");
    settings.kl_estimator = choice_of(loss, "loss", "kl_estimator", kl_estimators);
  }
  if (has("entropy_weight")) settings.entropy_weight = number("entropy_weight");
  if (has("tis_cap")) settings.tis_cap = number("tis_cap");
  refuse_unknown_keys(loss, "loss", known);
  validate(settings);
  return settings;
}

UpdateSettings read_update_settings(const Request& request) {
  UpdateSettings settings;
  settings.learning_rates = request.numbers("learning_rates");
  if (settings.learning_rates.empty()) throw RequestError("BadInput", "learning_rates must have one entry for each mini-batch");
  const std::vector<double> betas = request.numbers("adam_betas");
  if (betas.size() != 2) throw RequestError("BadInput", "adam_betas must have two entries");
  settings.optimizer.beta1 = betas[0];
  settings.optimizer.beta2 = betas[1];
  settings.optimizer.adam_eps = request.number("adam_eps");
  settings.optimizer.weight_decay = request.number("weight_decay");
  settings.optimizer.max_grad_norm = request.number("max_grad_norm");
  settings.reset_moments = request.flag("reset_moments");
  settings.temperature = read_temperature(request);
  settings.loss = read_loss(request.field("loss"));
  return settings;
}

}  // namespace longhaul
