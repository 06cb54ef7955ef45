// The settings of a loss from a fixture's metadata, in the keys of run specs; a key left out has its default.
#pragma once

#include "fixture_file.h"
#include "train/loss.h"

namespace longhaul::test {

template <class Enum>
Enum enum_of(const std::string& name, std::initializer_list<std::pair<const char*, Enum>> names) {
  for (const auto& [text, value] : names)
    if (name == text) return value;
  throw Failure("fixture: unknown name " + name);
}

inline LossSettings loss_settings(const FlatJson& json, const std::string& path) {
  LossSettings settings;
  const auto number = [&](const char* key, double otherwise) { return json.number_or(path + "/" + key, otherwise); };
  settings.kind = enum_of<LossKind>(json.text(path + "/kind"), {{"regular", LossKind::regular},
                                                               {"dual_clip", LossKind::dual_clip},
                                                               {"gspo", LossKind::gspo},
                                                               {"cispo", LossKind::cispo},
                                                               {"sapo", LossKind::sapo},
                                                               {"reinforce", LossKind::reinforce},
                                                               {"cross_entropy", LossKind::cross_entropy}});
  settings.reduction =
      enum_of<LossReduction>(json.text(path + "/reduction"), {{"token_mean", LossReduction::token_mean},
                                                              {"sequence_mean", LossReduction::sequence_mean},
                                                              {"seq_mean_token_sum_norm", LossReduction::seq_mean_token_sum_norm}});
  if (json.has(path + "/kl_estimator"))
    settings.kl_estimator = enum_of<KlEstimator>(
        json.text(path + "/kl_estimator"), {{"k1", KlEstimator::k1}, {"k2", KlEstimator::k2}, {"k3", KlEstimator::k3}});
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
