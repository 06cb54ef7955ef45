// The loss of one target token and its derivative; every variant needs only ∂L/∂(log-prob).
#pragma once

namespace longhaul {

enum class LossKind { cross_entropy, clipped_policy };

struct LossSettings {
  LossKind kind = LossKind::cross_entropy;
  double eps_clip_low = 0.2;
  double eps_clip_high = 0.28;
};

struct TargetLoss {
  double loss = 0;
  /// ∂loss / ∂logprob
  double derivative = 0;
  /// exp(logprob − old); 1 for cross-entropy
  double ratio = 1;
  /// Whether the clip cut the gradient.
  bool clipped = false;
};

/// Cross-entropy −lp·advantage (advantages are 1); clipped policy −min(r·A, clip(r, 1−ε_low, 1+ε_high)·A), r = exp(lp − old).
/// Neither is divided by the number of targets.
TargetLoss target_loss(const LossSettings& settings, float logprob, float old_logprob, float advantage);

}  // namespace longhaul
