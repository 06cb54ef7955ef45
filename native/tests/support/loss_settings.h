// Reads the settings of a loss from a fixture's metadata, with the keys of run specs; loss_values.h has the defaults.
#pragma once

#include "support/fixture_file.h"
#include "support/loss_values.h"

namespace longhaul::test {

/// The element of `all` with this name.
template <class Enum, size_t N>
Enum named(const std::string& text, const Enum (&all)[N]) {
  for (const Enum one : all)
    if (text == name(one)) return one;
  throw Failure("fixture: unknown name " + text);
}

inline LossSettings loss_settings(const FlatJson& json, const std::string& path) {
  LossSettings settings = loss_of(named(json.text(path + "/kind"), loss_kinds), named(json.text(path + "/reduction"), loss_reductions));
  const auto number = [&](const char* key, double otherwise) { return json.number_or(path + "/" + key, otherwise); };
  if (json.has(path + "/kl_estimator")) settings.kl_estimator = named(json.text(path + "/kl_estimator"), kl_estimators);
  settings.max_seq_len = int(number("max_seq_len", settings.max_seq_len));
  settings.eps_clip_low = number("eps_clip_low", settings.eps_clip_low);
  settings.eps_clip_high = number("eps_clip_high", settings.eps_clip_high);
  settings.clip_ratio_c = number("clip_ratio_c", settings.clip_ratio_c);
  settings.cispo_eps_clip_low = number("cispo_eps_clip_low", settings.cispo_eps_clip_low);
  settings.cispo_eps_clip_high = number("cispo_eps_clip_high", settings.cispo_eps_clip_high);
  settings.sapo_tau_pos = number("sapo_tau_pos", settings.sapo_tau_pos);
  settings.sapo_tau_neg = number("sapo_tau_neg", settings.sapo_tau_neg);
  settings.kl_weight = number("kl_weight", settings.kl_weight);
  settings.entropy_weight = number("entropy_weight", settings.entropy_weight);
  settings.tis_cap = number("tis_cap", settings.tis_cap);
  return settings;
}

}  // namespace longhaul::test
