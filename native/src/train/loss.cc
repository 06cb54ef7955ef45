#include "train/loss.h"

#include <algorithm>

#include "base/exact_math.h"

namespace longhaul {

TargetLoss target_loss(const LossSettings& settings, float logprob, float old_logprob, float advantage) {
  const double weight = advantage;
  if (settings.kind == LossKind::cross_entropy) return {-double(logprob) * weight, -weight, 1, false};
  const double ratio = exact::exp(double(logprob) - double(old_logprob));
  const double low = 1 - settings.eps_clip_low, high = 1 + settings.eps_clip_high;
  const bool clipped = (weight > 0 && ratio > high) || (weight < 0 && ratio < low);
  const double loss = -std::min(ratio * weight, std::clamp(ratio, low, high) * weight);
  return {loss, clipped ? 0 : -ratio * weight, ratio, clipped};
}

}  // namespace longhaul
