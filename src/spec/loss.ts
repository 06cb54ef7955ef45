// Turns the objective of a run spec, in SkyRL's names, into a plan's loss (docs/engine-protocol.md) and advantages. The plan contains
// exactly the settings that affect the step, defaults included: it keeps its meaning when defaults change.
import { clipsRatio } from './records/live-ranges.js';
import type { LossPlan } from './records/loss-plan.js';
import type { AdvantagePlan } from './records/plan.js';
import type { GeneratorSpec, TrainerSpec } from './run-spec.js';

/** The loss of supervised phases. */
export const crossEntropy: LossPlan = { kind: 'cross_entropy', reduction: 'token_mean' };

/** The loss of a GRPO step. */
export function lossOf(
  trainer: TrainerSpec,
  { max_input_length, max_generate_length }: Pick<GeneratorSpec, 'max_input_length' | 'max_generate_length'>,
): LossPlan {
  const { policy_loss_type: kind, loss_reduction: reduction } = trainer;
  const kl = trainer.use_kl_loss && trainer.kl_loss_coef > 0;
  const entropy = trainer.use_entropy_loss && trainer.entropy_loss_coef > 0;
  return {
    kind,
    reduction,
    ...(reduction === 'seq_mean_token_sum_norm'
      ? { max_seq_len: trainer.max_seq_len ?? max_input_length + max_generate_length }
      : {}),
    ...(clipsRatio(kind) ? { eps_clip_low: trainer.eps_clip_low, eps_clip_high: trainer.eps_clip_high } : {}),
    ...(kind === 'dual_clip' ? { clip_ratio_c: trainer.clip_ratio_c } : {}),
    ...(kind === 'cispo' ? trainer.cispo : {}),
    ...(kind === 'sapo' ? { sapo_tau_pos: trainer.sapo.tau_pos, sapo_tau_neg: trainer.sapo.tau_neg } : {}),
    ...(kl ? { kl_weight: trainer.kl_loss_coef, kl_estimator: trainer.kl_estimator_type } : {}),
    ...(entropy ? { entropy_weight: trainer.entropy_loss_coef } : {}),
    ...(trainer.use_tis ? { tis_cap: trainer.tis_imp_ratio_cap } : {}),
  };
}

export function advantagesOf(trainer: TrainerSpec): AdvantagePlan {
  const { advantage_estimator: estimator, advantage_eps: eps } = trainer;
  switch (estimator) {
    case 'grpo':
      return trainer.grpo_norm_by_std
        ? { estimator, norm_by_std: true, deviation: trainer.advantage_deviation, eps }
        : { estimator, norm_by_std: false };
    case 'maxrl':
      return { estimator, eps };
    case 'rloo':
    case 'reinforce++':
      return { estimator };
  }
}

/** Whether a loss needs the log-probs of a reference policy. */
export function wantsReference(loss: LossPlan): boolean {
  return loss.kl_weight !== undefined && loss.kl_weight !== 0;
}
