// The engine's loss in a plan: its settings, some of which are required by its kind.
import { z } from 'zod';
import { settingsOfKind } from './live-ranges.js';
import { amount, positive } from './parts.js';

export const policyLossTypes = ['regular', 'dual_clip', 'gspo', 'cispo', 'sapo', 'reinforce'] as const;
export const lossReductions = ['token_mean', 'sequence_mean', 'seq_mean_token_sum_norm'] as const;
export const klEstimators = ['k1', 'k2', 'k3'] as const;
export const advantageEstimators = ['grpo', 'rloo', 'reinforce++', 'maxrl'] as const;

/** The engine's loss in the form of the engine protocol. `loss.ts` makes it from a spec. Settings without effect are absent. */
export type LossPlan = z.infer<typeof lossSettings>;
const lossSettings = z.strictObject({
  kind: z.enum([...policyLossTypes, 'cross_entropy']),
  reduction: z.enum(lossReductions),
  max_seq_len: positive.exactOptional(),
  eps_clip_low: amount.exactOptional(),
  eps_clip_high: amount.exactOptional(),
  clip_ratio_c: amount.exactOptional(),
  cispo_eps_clip_low: amount.exactOptional(),
  cispo_eps_clip_high: amount.exactOptional(),
  sapo_tau_pos: amount.exactOptional(),
  sapo_tau_neg: amount.exactOptional(),
  kl_weight: amount.exactOptional(),
  kl_estimator: z.enum(klEstimators).exactOptional(),
  entropy_weight: amount.exactOptional(),
  tis_cap: amount.exactOptional(),
});
export const loss = lossSettings.superRefine((settings, context) => {
  for (const key of missingIn(settings))
    context.addIssue({
      code: 'custom',
      path: [key],
      message: `is missing, but the loss ${settings.kind} needs it`,
    });
});

/** Settings that this kind of loss needs and `loss` lacks. */
function missingIn(loss: LossPlan): (keyof LossPlan)[] {
  const needed: (keyof LossPlan)[] = [
    ...settingsOfKind[loss.kind],
    ...(loss.reduction === 'seq_mean_token_sum_norm' ? (['max_seq_len'] as const) : []),
    ...(loss.kl_weight === undefined ? [] : (['kl_estimator'] as const)),
  ];
  return needed.filter((key) => loss[key] === undefined);
}
