// The loss of a mini-batch's targets and its derivatives. The backward pass needs two numbers for each target, whatever the objective:
// ∂L/∂(log-prob) and ∂L/∂(entropy). Formulas: docs/engine.md, "Losses".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhaul {

/// regular: PPO/GRPO/DAPO clip. Run specs use the same names.
enum class LossKind { regular, dual_clip, gspo, cispo, sapo, reinforce, cross_entropy };
/// token_mean: Σ/ΣM; sequence_mean: mean over samples of their token means; seq_mean_token_sum_norm: Σ / (samples · max_seq_len).
enum class LossReduction { token_mean, sequence_mean, seq_mean_token_sum_norm };
enum class KlEstimator { k1, k2, k3 };

inline constexpr LossKind loss_kinds[] = {LossKind::regular, LossKind::dual_clip, LossKind::gspo,         LossKind::cispo,
                                          LossKind::sapo,    LossKind::reinforce, LossKind::cross_entropy};
inline constexpr LossReduction loss_reductions[] = {LossReduction::token_mean, LossReduction::sequence_mean,
                                                    LossReduction::seq_mean_token_sum_norm};
inline constexpr KlEstimator kl_estimators[] = {KlEstimator::k1, KlEstimator::k2, KlEstimator::k3};

/// "dual_clip" …, as in run specs.
const char* name(LossKind kind);
const char* name(LossReduction reduction);
const char* name(KlEstimator estimator);

/// Whether the loss clips the ratio at 1 − eps_clip_low and 1 + eps_clip_high.
bool clips_ratio(LossKind kind);

/// The caller sets everything that the kind needs: there are no defaults here. A term with weight 0 is absent.
struct LossSettings {
  LossKind kind = LossKind::cross_entropy;
  LossReduction reduction = LossReduction::token_mean;
  /// Divisor of seq_mean_token_sum_norm, in tokens.
  int max_seq_len = 0;
  /// regular, dual_clip, gspo
  double eps_clip_low = 0, eps_clip_high = 0;
  /// dual_clip: bound c of the loss −c·A for A < 0 (Ye et al. 2020); above 1.
  double clip_ratio_c = 0;
  /// cispo: bounds of the detached weight, 1 − low and 1 + high.
  double cispo_eps_clip_low = 0, cispo_eps_clip_high = 0;
  /// sapo: temperatures for A > 0 and A ≤ 0.
  double sapo_tau_pos = 0, sapo_tau_neg = 0;
  double kl_weight = 0;
  KlEstimator kl_estimator = KlEstimator::k1;
  double entropy_weight = 0;
  /// Truncated importance sampling: weight min(exp(old − rollout), cap), not differentiated; 0: off.
  double tis_cap = 0;

  bool wants_reference() const { return kl_weight != 0; }
};

/// Checks the settings that the kind uses. Throws std::invalid_argument that names the setting, its value and what is allowed.
void validate(const LossSettings& settings);

/// Inputs of one mini-batch, [M] each.
struct LossInputs {
  std::span<const float> logprobs;
  std::span<const float> old_logprobs;
  std::span<const float> advantages;
  std::span<const int32_t> samples;        // counts up from 0
  std::span<const float> rollout_logprobs;   // empty: the old ones
  std::span<const float> reference_logprobs; // empty without KL
  std::span<const float> entropies;          // empty: not measured
};

/// Sums over targets unless said otherwise; the caller turns them into means over a whole update.
struct LossReport {
  /// The reduced loss, KL and entropy terms included.
  double loss = 0;
  double clipped = 0;         // targets with a gradient cut by the clip
  double ratio = 0;           // Σ exp(lp − old)
  double max_difference = 0;  // max |lp − old| (0 for cross-entropy)
  double kl = 0;              // Σ of the estimator
  double entropy = 0;         // Σ
  double tis_weight = 0;      // Σ
};

/// Fills `derivatives` [M] with ∂loss/∂logprob, and `entropy_derivatives` [M] with ∂loss/∂entropy unless that span is empty. In target
/// order, in double, on one thread. Throws nothing: non-finite inputs give a non-finite loss.
LossReport compute_loss(const LossSettings& settings, const LossInputs& inputs, std::span<double> derivatives,
                        std::span<double> entropy_derivatives);

}  // namespace longhaul
