#include "train/loss.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "base/exact_math.h"

namespace longhaul {

namespace {

/// The loss of one target before its weight, and the derivative of the differentiated part: ∂loss/∂logprob.
struct Term {
  double loss = 0, derivative = 0;
  bool clipped = false;
};

/// −min(r·A, clip(r)·A). The ratio r is its own derivative with respect to the log-prob.
Term clipped_surrogate(const LossSettings& settings, double ratio, double advantage) {
  const double low = 1 - settings.eps_clip_low, high = 1 + settings.eps_clip_high;
  const bool clipped = (advantage > 0 && ratio > high) || (advantage < 0 && ratio < low);
  const double loss = -std::min(ratio * advantage, std::clamp(ratio, low, high) * advantage);
  return {loss, clipped ? 0 : -ratio * advantage, clipped};
}

/// The clipped surrogate, bounded by −c·A for A < 0: a token that became far too likely cannot dominate the step.
Term dual_clipped_surrogate(const LossSettings& settings, double ratio, double advantage) {
  const double bound = -settings.clip_ratio_c * advantage;
  const Term term = clipped_surrogate(settings, ratio, advantage);
  if (advantage < 0 && term.loss > bound) return {bound, 0, true};
  return term;
}

/// −A·w·logprob, where w is the clamped ratio and is not differentiated: no target loses its gradient.
Term clamped_weight(const LossSettings& settings, double ratio, double advantage, double logprob) {
  const double low = 1 - settings.cispo_eps_clip_low, high = 1 + settings.cispo_eps_clip_high;
  const double weight = std::clamp(ratio, low, high);
  return {-advantage * weight * logprob, -advantage * weight, ratio < low || ratio > high};
}

/// −A·4σ(τ(r − 1))/τ: a smooth gate in place of the clip.
Term soft_gate(const LossSettings& settings, double ratio, double advantage) {
  const double tau = advantage > 0 ? settings.sapo_tau_pos : settings.sapo_tau_neg;
  const double decay = exact::exp(-tau * (ratio - 1)), gate = 1 / (1 + decay);
  return {-advantage * gate * 4 / tau, -advantage * 4 * gate * (decay * gate) * ratio, false};
}

Term term_of(const LossSettings& settings, double logprob, double ratio, double sequence_ratio, double advantage) {
  switch (settings.kind) {
    case LossKind::regular:
      return clipped_surrogate(settings, ratio, advantage);
    case LossKind::dual_clip:
      return dual_clipped_surrogate(settings, ratio, advantage);
    case LossKind::gspo:
      return clipped_surrogate(settings, sequence_ratio, advantage);
    case LossKind::cispo:
      return clamped_weight(settings, ratio, advantage, logprob);
    case LossKind::sapo:
      return soft_gate(settings, ratio, advantage);
    case LossKind::reinforce:
    case LossKind::cross_entropy:
      break;
  }
  return {-advantage * logprob, -advantage, false};
}

/// An estimate of KL(policy ‖ reference) from one log-prob (Schulman 2020), and its derivative.
Term kl_term(KlEstimator estimator, double logprob, double reference) {
  const double difference = logprob - reference;
  switch (estimator) {
    case KlEstimator::k1:
      return {difference, 1, false};
    case KlEstimator::k2:
      return {0.5 * difference * difference, difference, false};
    case KlEstimator::k3:
      break;
  }
  const double ratio = exact::exp(-difference);
  return {ratio - 1 + difference, 1 - ratio, false};
}

/// Weight of one target in the policy loss. `own`: number of targets in its sample.
double reduction_weight(const LossSettings& settings, size_t targets, size_t samples, size_t own) {
  switch (settings.reduction) {
    case LossReduction::token_mean:
      return 1 / double(targets);
    case LossReduction::sequence_mean:
      return 1 / (double(samples) * double(own));
    case LossReduction::seq_mean_token_sum_norm:
      break;
  }
  return 1 / (double(samples) * double(settings.max_seq_len));
}

size_t end_of_sample(std::span<const int32_t> samples, size_t first) {
  size_t last = first + 1;
  while (last < samples.size() && samples[last] == samples[first]) ++last;
  return last;
}

void require(bool ok, const char* key, double value, const char* allowed) {
  if (ok) return;
  std::ostringstream text;
  text << "loss." << key << " is " << value << "; it must be " << allowed;
  throw std::invalid_argument(text.str());
}

void require_not_negative(const char* key, double value) {
  require(std::isfinite(value) && value >= 0, key, value, "finite and not negative");
}

}  // namespace

const char* name(LossKind kind) {
  switch (kind) {
    case LossKind::regular:
      return "regular";
    case LossKind::dual_clip:
      return "dual_clip";
    case LossKind::gspo:
      return "gspo";
    case LossKind::cispo:
      return "cispo";
    case LossKind::sapo:
      return "sapo";
    case LossKind::reinforce:
      return "reinforce";
    case LossKind::cross_entropy:
      break;
  }
  return "cross_entropy";
}

const char* name(LossReduction reduction) {
  switch (reduction) {
    case LossReduction::token_mean:
      return "token_mean";
    case LossReduction::sequence_mean:
      return "sequence_mean";
    case LossReduction::seq_mean_token_sum_norm:
      break;
  }
  return "seq_mean_token_sum_norm";
}

const char* name(KlEstimator estimator) {
  switch (estimator) {
    case KlEstimator::k1:
      return "k1";
    case KlEstimator::k2:
      return "k2";
    case KlEstimator::k3:
      break;
  }
  return "k3";
}

bool clips_ratio(LossKind kind) { return kind == LossKind::regular || kind == LossKind::dual_clip || kind == LossKind::gspo; }

void validate(const LossSettings& settings) {
  if (clips_ratio(settings.kind)) {
    require(settings.eps_clip_low >= 0 && settings.eps_clip_low <= 1, "eps_clip_low", settings.eps_clip_low, "in [0, 1]");
    require_not_negative("eps_clip_high", settings.eps_clip_high);
  }
  if (settings.kind == LossKind::dual_clip)
    require(std::isfinite(settings.clip_ratio_c) && settings.clip_ratio_c > 1, "clip_ratio_c", settings.clip_ratio_c,
            "finite and above 1");
  if (settings.kind == LossKind::cispo) {
    require_not_negative("cispo_eps_clip_low", settings.cispo_eps_clip_low);
    require_not_negative("cispo_eps_clip_high", settings.cispo_eps_clip_high);
  }
  if (settings.kind == LossKind::sapo) {
    require(std::isfinite(settings.sapo_tau_pos) && settings.sapo_tau_pos > 0, "sapo_tau_pos", settings.sapo_tau_pos,
            "finite and above 0");
    require(std::isfinite(settings.sapo_tau_neg) && settings.sapo_tau_neg > 0, "sapo_tau_neg", settings.sapo_tau_neg,
            "finite and above 0");
  }
  require_not_negative("kl_weight", settings.kl_weight);
  require_not_negative("entropy_weight", settings.entropy_weight);
  require_not_negative("tis_cap", settings.tis_cap);
  require(settings.kind != LossKind::cross_entropy || settings.tis_cap == 0, "tis_cap", settings.tis_cap,
          "0 with cross_entropy, for which no log-probs from sampling exist");
  require(settings.reduction != LossReduction::seq_mean_token_sum_norm || settings.max_seq_len >= 1, "max_seq_len",
          settings.max_seq_len, "at least 1 with seq_mean_token_sum_norm, which divides by it");
}

LossReport compute_loss(const LossSettings& settings, const LossInputs& inputs, std::span<double> derivatives,
                        std::span<double> entropy_derivatives) {
  const size_t targets = inputs.logprobs.size();
  const size_t samples = targets == 0 ? 0 : size_t(inputs.samples.back()) + 1;
  const bool off_policy = settings.kind != LossKind::cross_entropy, has_kl = settings.wants_reference();
  const bool has_entropy = !inputs.entropies.empty();
  const double entropy_weight = settings.entropy_weight == 0 ? 0 : settings.entropy_weight / double(targets);
  LossReport report;
  for (size_t first = 0, last = 0; first < targets; first = last) {
    last = end_of_sample(inputs.samples, first);
    const double weight = reduction_weight(settings, targets, samples, last - first);
    const double kl_weight = settings.kl_weight / (double(samples) * double(last - first));
    double sequence_ratio = 1;
    if (settings.kind == LossKind::gspo) {
      double sum = 0;
      for (size_t t = first; t < last; ++t) sum += double(inputs.logprobs[t]) - double(inputs.old_logprobs[t]);
      sequence_ratio = exact::exp(sum / double(last - first));
    }
    for (size_t t = first; t < last; ++t) {
      const double logprob = inputs.logprobs[t], old = off_policy ? double(inputs.old_logprobs[t]) : logprob;
      const double ratio = exact::exp(logprob - old);
      const Term term = term_of(settings, logprob, ratio, sequence_ratio, inputs.advantages[t]);
      double importance = 1;
      if (settings.tis_cap > 0) {
        const double sampled = inputs.rollout_logprobs.empty() ? old : double(inputs.rollout_logprobs[t]);
        importance = std::min(exact::exp(old - sampled), settings.tis_cap);
        report.tis_weight += importance;
      }
      report.loss += weight * importance * term.loss;
      derivatives[t] = weight * importance * term.derivative;
      report.clipped += term.clipped;
      report.ratio += ratio;
      report.max_difference = std::max(report.max_difference, std::abs(logprob - old));
      if (has_kl) {
        const Term kl = kl_term(settings.kl_estimator, logprob, inputs.reference_logprobs[t]);
        report.kl += kl.loss;
        report.loss += kl_weight * kl.loss;
        derivatives[t] += kl_weight * kl.derivative;
      }
      if (has_entropy) {
        report.entropy += double(inputs.entropies[t]);
        // Only if the entropy is trained on may a non-finite entropy make the loss non-finite and so end the update.
        if (entropy_weight != 0) report.loss -= entropy_weight * double(inputs.entropies[t]);
      }
      if (!entropy_derivatives.empty()) entropy_derivatives[t] = -entropy_weight;
    }
  }
  return report;
}

}  // namespace longhaul
