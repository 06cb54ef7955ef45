// The keys of `trainer` in a run spec, and the combinations of them that are impossible.
import { z } from 'zod';
import { betas, count, countOrZero, inRange, name, positive, share } from './fields.js';
import type { SpecProblem } from './invalid-spec.js';
import { liveRanges } from './records/live-ranges.js';
import { advantageEstimators, klEstimators, lossReductions, policyLossTypes } from './records/loss-plan.js';

/** Default of `trainer.block_after_s`: within this time a driver restarts, or another process frees the memory that it took. */
export const usualBlockAfterSeconds = 600;

export const defaultMaxGradNorm = 1;

const curriculum = z.strictObject({
  by: z.enum(['template', 'env']).default('template').describe('what has a pass rate and a weight'),
  floor: z
    .number()
    .min(0)
    .default(0.02)
    .describe('pass rate p gives the weight p(1−p) + this; 0: the weight is the number of tasks'),
  max_share: positive
    .max(1)
    .exactOptional()
    .describe('largest share of a step’s groups for one template or environment; absent: no limit'),
  weights: z
    .record(name, positive)
    .exactOptional()
    .describe('factors of the weights, by `env_key`; others have 1'),
});

const dynamicSampling = z.strictObject({
  type: z
    .enum(['filter', 'replace'])
    .describe(
      '`filter`: samples more groups until enough have different rewards; `replace`: only if few have, and repeats good groups',
    ),
  max_sample_batches: count.min(2).default(3).describe('most waves in a step, the first one included'),
  min_replace_ratio: share
    .exactOptional()
    .describe('`replace`: share of a step’s groups that is enough; absent: 0.3'),
});

export const trainer = z.strictObject({
  train_batch_size: inRange(liveRanges.train_batch_size).default(32).describe('groups per GRPO step'),
  max_training_steps: count.describe('GRPO steps, without the warm start’s'),
  lr: inRange(liveRanges.lr).default(1e-6).describe('learning rate after warm-up'),
  warmup_steps: countOrZero.default(0).describe('GRPO steps while the learning rate rises'),
  adam_betas: betas.default([0.9, 0.999]).describe('decay of the two moments'),
  adam_eps: positive.default(1e-8).describe('added to the square root of the second moment'),
  weight_decay: z.number().min(0).default(0.01).describe('decoupled weight decay'),
  max_grad_norm: positive.default(defaultMaxGradNorm).describe('the global gradient norm is clipped at this'),
  policy_loss_type: z
    .enum(policyLossTypes)
    .default('regular')
    .describe('`regular` clips as in PPO, GRPO and DAPO; [formulas](engine.md#losses)'),
  loss_reduction: z
    .enum(lossReductions)
    .default('token_mean')
    .describe(
      'mean over tokens, over the samples’ means, or over the samples’ sums / `max_seq_len` (Dr. GRPO)',
    ),
  max_seq_len: count
    .exactOptional()
    .describe('divisor of `seq_mean_token_sum_norm`; absent: `max_input_length` + `max_generate_length`'),
  eps_clip_low: inRange(liveRanges.eps_clip_low).default(0.2).describe('the ratio is clipped at 1 − this'),
  eps_clip_high: inRange(liveRanges.eps_clip_high).default(0.2).describe('the ratio is clipped at 1 + this'),
  clip_ratio_c: z.number().gt(1).default(3).describe('`dual_clip`: bounds the loss of a negative advantage'),
  cispo: z
    .strictObject({
      cispo_eps_clip_low: z.number().min(0).default(1).describe('a weight is at least 1 − this'),
      cispo_eps_clip_high: z.number().min(0).default(5).describe('a weight is at most 1 + this'),
    })
    .prefault({})
    .describe('settings of `policy_loss_type: cispo`'),
  sapo: z
    .strictObject({
      tau_pos: positive.default(1).describe('gate temperature of advantages above 0'),
      tau_neg: positive.default(1.05).describe('gate temperature of other advantages'),
    })
    .prefault({})
    .describe('settings of `policy_loss_type: sapo`'),
  use_kl_loss: z
    .boolean()
    .default(false)
    .describe('adds a KL term against the policy that GRPO begins with; with LoRA, not after a warm start'),
  kl_loss_coef: inRange(liveRanges.kl_loss_coef).default(0.001).describe('weight of the KL term'),
  kl_estimator_type: z.enum(klEstimators).default('k3').describe('estimator of the KL term'),
  use_entropy_loss: z.boolean().default(false).describe('adds an entropy bonus'),
  entropy_loss_coef: inRange(liveRanges.entropy_loss_coef)
    .default(0.01)
    .describe('weight of the entropy bonus'),
  use_tis: z
    .boolean()
    .default(false)
    .describe('truncated importance sampling; its weights are 1 except after a rebase'),
  tis_imp_ratio_cap: positive.default(2).describe('largest importance weight'),
  advantage_estimator: z
    .enum(advantageEstimators)
    .default('grpo')
    .describe('[formulas](records.md#the-batch-file-longhaulbatch2)'),
  grpo_norm_by_std: z.boolean().default(true).describe('`grpo`: divide by the standard deviation'),
  advantage_deviation: z
    .enum(['population', 'sample'])
    .default('population')
    .describe('`population` divides by n, `sample` (as in SkyRL) by n − 1'),
  advantage_eps: positive.default(1e-6).describe('added to the standard deviation (`maxrl`: to the mean)'),
  dynamic_sampling: dynamicSampling
    .exactOptional()
    .describe('[waves](guide/own-tasks.md#what-a-step-learns-from) of further groups; absent: none'),
  apply_overlong_filtering: z
    .boolean()
    .default(false)
    .describe('episodes that a length limit cut off carry no loss; their rewards count'),
  curriculum_floor: z
    .number()
    .min(0)
    .default(0)
    .describe('as `curriculum.floor`, by template; 0: all tasks have equal weight'),
  curriculum: curriculum
    .exactOptional()
    .describe(
      '[how tasks are drawn](guide/own-tasks.md#what-a-step-learns-from), in place of `curriculum_floor`',
    ),
  balance: z
    .literal('env')
    .exactOptional()
    .describe('every environment gets the same number of groups; `curriculum` draws within it'),
  save_every: count
    .exactOptional()
    .describe('with `model.served`: the server saves the state every N steps; absent: 1'),
  ckpt_interval: inRange(liveRanges.ckpt_interval).default(10).describe('steps between uploaded checkpoints'),
  eval_interval: inRange(liveRanges.eval_interval).default(10).describe('GRPO steps between evaluations'),
  target_pass_at_1: share.default(0).describe('pass@1 of an interval evaluation that ends the run; 0: none'),
  block_after_s: z
    .number()
    .min(0)
    .exactOptional()
    .describe(
      `how long a failure may repeat before the run blocks; 0: until another node fails too; absent: ${usualBlockAfterSeconds}`,
    ),
});

/** Whether shares of at most `share` can fill a step from that many templates or environments. */
export function canFillStep(share: number, pools: number): boolean {
  // 1 / pools, written with as many digits as a number has, is enough.
  return share * pools >= 1 - 1e-9;
}

/** The problem of a `max_share` with which no step could be filled. */
export function shareProblem(share: number, pools: number, by: 'template' | 'env'): SpecProblem {
  const [one, several] = by === 'env' ? ['environment', 'environments'] : ['template', 'templates'];
  return {
    path: 'trainer.curriculum.max_share',
    problem: `${share} is too little for ${pools} ${pools === 1 ? one : several}: no step could be filled`,
    fix: pools === 1 ? 'raise it to 1' : `raise it to ${Math.ceil(1000 / pools) / 1000} or more, at most 1`,
  };
}

interface TrainerContext {
  trainer: z.output<typeof trainer>;
  environments: readonly { env_key: string }[];
}

export function trainerProblems({ trainer, environments }: TrainerContext): SpecProblem[] {
  const problems: SpecProblem[] = [];
  if (trainer.warmup_steps > trainer.max_training_steps) {
    problems.push({
      path: 'trainer.warmup_steps',
      problem: `${trainer.warmup_steps} is more than max_training_steps ${trainer.max_training_steps}`,
      fix: 'lower it',
    });
  }
  if (trainer.max_seq_len !== undefined && trainer.loss_reduction !== 'seq_mean_token_sum_norm') {
    problems.push({
      path: 'trainer.max_seq_len',
      problem: `loss_reduction ${trainer.loss_reduction} does not divide by a length`,
      fix: 'remove it, or set loss_reduction: seq_mean_token_sum_norm',
    });
  }
  if (trainer.dynamic_sampling?.type === 'filter' && trainer.dynamic_sampling.min_replace_ratio !== undefined)
    problems.push({
      path: 'trainer.dynamic_sampling.min_replace_ratio',
      problem: 'is for type: replace',
      fix: 'remove it: filter replaces nothing',
    });
  return [...problems, ...curriculumProblems(trainer, environments)];
}

function curriculumProblems(
  { curriculum, curriculum_floor, balance }: TrainerContext['trainer'],
  environments: TrainerContext['environments'],
): SpecProblem[] {
  if (curriculum === undefined) return [];
  const problems: SpecProblem[] = [];
  if (curriculum_floor > 0)
    problems.push({
      path: 'trainer.curriculum_floor',
      problem: 'is given together with curriculum, which has a floor of its own',
      fix: `remove it, and set curriculum.floor: ${curriculum_floor}`,
    });
  const keys = environments.map(({ env_key }) => env_key);
  for (const key of Object.keys(curriculum.weights ?? {}))
    if (!keys.includes(key) && !keys.includes('*'))
      problems.push({
        path: `trainer.curriculum.weights.${key}`,
        problem: 'no environment has that env_key',
        fix: `environments: ${keys.join(', ')}`,
      });
  const { by, max_share = 1 } = curriculum;
  // Not every environment need have training tasks, but no more have any.
  if (by === 'env' && !keys.includes('*') && !canFillStep(max_share, keys.length))
    problems.push(shareProblem(max_share, keys.length, by));
  if (balance === undefined) return problems;
  const decides = {
    by: curriculum.by === 'env',
    max_share: curriculum.max_share !== undefined,
    weights: curriculum.weights !== undefined,
  };
  for (const [key, given] of Object.entries(decides))
    if (given)
      problems.push({
        path: `trainer.curriculum.${key}`,
        problem: 'shares a step among environments, and so does balance',
        fix: 'keep one of them',
      });
  return problems;
}
