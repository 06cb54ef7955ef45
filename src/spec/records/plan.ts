// The plan fixes everything that a step may depend on, before its first token is sampled (R7).
import { z } from 'zod';
import { loss } from './loss-plan.js';
import {
  amount,
  count,
  counts,
  digest,
  digests,
  numerics,
  positive,
  sampling,
  share,
  text,
} from './parts.js';

export type OptimizerPlan = z.infer<typeof optimizer>;
const optimizer = z.strictObject({
  learning_rates: z.array(amount).min(1).describe('one per mini-batch, in order'),
  adam_betas: z.tuple([share, share]),
  adam_eps: z.number().positive(),
  weight_decay: amount,
  max_grad_norm: z.number().positive(),
  reset_moments: z.boolean().describe('set the moments and the count to zero first'),
});

/** How the advantages of a GRPO step are computed from its outcomes. */
export type AdvantagePlan = z.infer<typeof advantages>;
const advantages = z.union([
  z.strictObject({
    estimator: z.literal('grpo'),
    norm_by_std: z.literal(true),
    deviation: z.enum(['population', 'sample']),
    eps: amount,
  }),
  z.strictObject({ estimator: z.literal('grpo'), norm_by_std: z.literal(false) }),
  z.strictObject({ estimator: z.literal('rloo') }),
  z.strictObject({ estimator: z.literal('reinforce++') }),
  z.strictObject({ estimator: z.literal('maxrl'), eps: amount }),
]);

/**
 * Curriculum and data position (R7): `pass_rates` as used for this step, `cursors` as they are after planning it. Both are by pool of tasks:
 * template or environment.
 */
export type CurriculumState = z.infer<typeof curriculum>;
const curriculum = z.strictObject({
  pass_rates: z.record(z.string(), share).describe('by template, used for this step'),
  // A cursor is an index into the pool's shuffled list; at the list's end it starts a new epoch.
  cursors: counts.describe('by template: next unused task after this step'),
  by: z.literal('env').exactOptional().describe('both are by environment'),
});

/** Place of one group in a step: its task and seed. */
export type SlotPlan = z.infer<typeof slot>;
export const slot = z.strictObject({
  slot: count,
  task_key: text,
  env_key: text,
  template: text,
  seed: z.number().int(),
});

const everyPlan = {
  schema: z.literal('longhaul.plan/4'),
  run: text,
  step: positive,
  previous_state: digest,
  rebased: z
    .strictObject({ run: text, plan: digest })
    .exactOptional()
    .describe('applies the batch of that run’s same step ([rebase](#forks-and-rewinds))'),
  optimizer,
  loss: loss.describe(
    'settings that affect it, as the engine’s [`update`](engine-protocol.md#verbs) takes them',
  ),
  reference: digest
    .exactOptional()
    .describe(
      'with `loss.kl_weight`: `identity.weights` of the last step before GRPO (step 0 without a warm start)',
    ),
  curriculum,
  digests,
  numerics,
  control: count.describe('newest control record in the plan; 0: none'),
  owner: positive.describe('`n` of the owner that planned'),
  run_digest: digest.describe('sha256 of `run.json`’s bytes'),
  control_digest: digest.describe('list digest of the sha256 of control records 1 to `control`'),
  owner_digest: digest.describe('the same for owner records'),
  // A supervised plan needs the sampling settings, too: they shape a demonstration's prompt (tool list, system text).
  sampling,
};

/** Everything that the step's waves depend on, beside the plan's curriculum and the outcomes. */
const dynamicSampling = z.strictObject({
  type: z.enum(['filter', 'replace']),
  max_sample_batches: positive.describe('most waves, `slots` included'),
  wanted: positive.describe('groups with different values that are enough'),
  floor: amount.describe('this and the next three: how tasks are drawn'),
  max_share: share.exactOptional(),
  weights: z.record(text, amount).exactOptional(),
  balance: z.literal('env').exactOptional(),
});

export type GrpoPlan = z.infer<typeof grpoPlan>;
const grpoPlan = z.strictObject({
  ...everyPlan,
  kind: z.literal('grpo'),
  slots: z.array(slot).min(1),
  samples_per_slot: positive,
  advantages: advantages,
  dynamic_sampling: dynamicSampling.exactOptional().describe('the step may get [waves](#longhaulwave1)'),
  overlong_filtering: z
    .literal(true)
    .exactOptional()
    .describe('cut-off episodes [carry no loss](#the-batch-file-longhaulbatch2)'),
});

export type SftPlan = z.infer<typeof sftPlan>;
const sftPlan = z.strictObject({
  ...everyPlan,
  kind: z.literal('sft'),
  phase: text,
  mini_batches: z
    .array(z.array(count).min(1))
    .min(1)
    .describe('line numbers in `demonstrations.jsonl`, from 0'),
});

export type PlanRecord = z.infer<typeof plan>;
export const plan = z.discriminatedUnion('kind', [grpoPlan, sftPlan]);
