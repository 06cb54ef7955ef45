// The default loss settings of tests and fixtures.
#pragma once

#include "train/loss.h"

namespace longhaul::test {

inline LossSettings loss_of(LossKind kind, LossReduction reduction = LossReduction::token_mean) {
  LossSettings settings;
  settings.kind = kind;
  settings.reduction = reduction;
  settings.eps_clip_low = 0.2;
  settings.eps_clip_high = 0.28;
  settings.clip_ratio_c = 3;
  settings.cispo_eps_clip_low = 1;
  settings.cispo_eps_clip_high = 5;
  settings.sapo_tau_pos = 1;
  settings.sapo_tau_neg = 1.05;
  settings.kl_estimator = KlEstimator::k3;
  return settings;
}

}  // namespace longhaul::test
