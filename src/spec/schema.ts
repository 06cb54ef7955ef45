// What a run spec may say: every key with its bounds, default and meaning; of its model in `model-schema.ts`. `run-spec.ts` has the
// types of the result, `docs/run-spec.md` is written from here.
import { z } from 'zod';
import { count, countOrZero, name, positive, runId, seed, text } from './fields.js';
import { advantageEstimators, klEstimators, lossReductions, policyLossTypes } from './loss.js';
import { model } from './model-schema.js';
import type { SlackNews } from './run-spec.js';
import { secretInUrl } from '../base/secrets.js';

/** Default of `trainer.block_after_s`: a driver restarts, or a neighbour gives its memory back, within minutes. */
export const usualBlockAfterSeconds = 600;

const share = z.number().min(0).max(1);
const betas = z.tuple([z.number().min(0).lt(1), z.number().min(0).lt(1)]);

const builtin = z.strictObject({
  apps: z
    .array(z.enum(['tracker', 'booking']))
    .min(1)
    .describe('built-in apps that tasks are made for'),
  seed: seed.default(1).describe('seed of the generator; independent of the run’s'),
  train_tasks: count.default(20_000).describe('tasks to train on'),
  held_out_tasks: count.default(512).describe('tasks for evaluation only'),
  drill_demonstrations: countOrZero.default(0).describe('demonstrations of kind `drill`'),
  teacher_demonstrations: countOrZero.default(0).describe('demonstrations of kind `teacher`'),
});

const data = z.strictObject({
  tasks: text.exactOptional().describe('JSONL file of tasks, relative to the spec file; excludes `builtin`'),
  demonstrations: text.exactOptional().describe('JSONL file of demonstrations, relative to the spec file'),
  builtin: builtin
    .exactOptional()
    .describe('tasks and demonstrations of the built-in apps; excludes `tasks`'),
  eval_tasks: count.default(128).describe('held-out tasks of an interval evaluation'),
  final_eval_tasks: count.default(256).describe('held-out tasks of the evaluations before and after GRPO'),
});

const environment = z.strictObject({
  env_key: name.describe('environment of the tasks that name it'),
  url: z
    .url({ protocol: /^https?$/ })
    .refine((url) => secretInUrl(url) === null, {
      error:
        'must be http://host:port without user, password or query: a spec is recorded and shown, so that it holds no ' +
        'secret. A grading token is given by the name of a variable, in grading_token_env',
    })
    .exactOptional()
    .describe('OpenEnv server; absent: the embedded stack’s own'),
  grading_token_env: z
    .string()
    // Not a `regex`, whose problem would repeat what may be the token.
    .refine((variable) => /^[A-Z_][A-Z0-9_]{0,63}$/.test(variable), {
      error:
        'must be the name of an environment variable, in capitals, such as TRACKER_TOKEN, and never the token itself: ' +
        'export the variable where the workers run',
    })
    .exactOptional()
    .describe('name of the environment variable that holds the grading token'),
  fault_rate: share
    .default(0)
    .describe('share of infrastructure calls that the built-in server fails on purpose'),
  tool_error_rate: share
    .default(0)
    .describe('share of tool calls that the built-in server answers with an error on purpose'),
});

const sftPhase = z.strictObject({
  name: name.describe('name of the phase in logs and charts'),
  demonstrations: text.describe('kind of the demonstrations it reads'),
  updates: count.describe('optimizer updates'),
  mini_batches_per_step: count.default(50).describe('updates in one committed step'),
  mini_batch_size: count.default(16).describe('demonstrations an update'),
  lr: positive.max(1).default(1e-5).describe('learning rate after warm-up'),
  warmup_updates: countOrZero.default(0).describe('updates over which the rate rises linearly'),
  decay_share: share
    .default(0)
    .describe('share of the phase, at its end, over which the rate falls to a tenth'),
  adam_betas: betas.default([0.9, 0.999]).describe('decay of the first and second moments'),
});

const generator = z.strictObject({
  n_samples_per_prompt: count.min(2).default(8).describe('samples of a group'),
  temperature: positive.max(10).default(1).describe('of sampling in training; evaluations sample at 1'),
  max_turns: count.max(1000).default(10).describe('turns of an episode'),
  max_input_length: count.default(8_192).describe('tokens before a turn'),
  max_generate_length: count.default(1_024).describe('tokens of one turn'),
  max_sequence_length: count.default(16_384).describe('tokens of a whole transcript'),
  tools_format: z
    .enum(['json', 'signatures'])
    .default('json')
    .describe('tool list as JSON, or one line a tool for small models'),
  system_prompt: z
    .enum(['skyrl', 'short'])
    .default('skyrl')
    .describe('SkyRL’s prompt sections, or a few lines for small models'),
  max_output_chars: count.default(10_000).describe('characters of a tool result that reach the model'),
  max_episode_failures: countOrZero
    .default(3)
    .describe('charged failures of an episode before its outcome is unknown'),
  max_unknown_share: z
    .number()
    .min(0)
    .max(1)
    .default(0.5)
    .describe(
      'share of unknown outcomes above which an evaluation, or two steps in a row, block the run; without any grade they do at once',
    ),
  stop: z
    .array(text)
    .min(1)
    .max(16)
    .exactOptional()
    .describe('texts; a turn also ends with the token that completes one of them'),
  top_p: positive
    .max(1)
    .exactOptional()
    .describe(
      'training episodes draw from the likeliest tokens that make up this share; needs `truncated_sampling`',
    ),
  top_k: count
    .exactOptional()
    .describe('training episodes draw from so many likeliest tokens; needs `truncated_sampling`'),
  truncated_sampling: z
    .boolean()
    .exactOptional()
    .describe(
      'accepts what `top_p` and `top_k` do: the log-probs that updates compare are of the whole distribution, and the episodes of another one; ' +
        'evaluations draw from the whole one',
    ),
  max_wait_s: positive
    .default(3_600)
    .describe('seconds to wait for an environment that is down before the run blocks'),
  // Below the standstill after which an attempt's heartbeat ends (`workers/attempt/activity-guard.ts`): it may be all that happens.
  call_timeout_s: positive
    .max(900)
    .default(60)
    .describe('seconds within which an environment call must be answered'),
});

const trainer = z.strictObject({
  train_batch_size: count.default(32).describe('groups in a GRPO step'),
  max_training_steps: count.describe('GRPO steps; warm-start steps come on top'),
  lr: positive.max(1).default(1e-6).describe('learning rate after warm-up'),
  warmup_steps: countOrZero.default(0).describe('GRPO steps over which the rate rises linearly'),
  adam_betas: betas.default([0.9, 0.999]).describe('decay of the first and second moments'),
  adam_eps: positive.default(1e-8).describe('added to the root of the second moment'),
  weight_decay: z.number().min(0).default(0.01).describe('decoupled, a step, times the learning rate'),
  max_grad_norm: positive.default(1).describe('gradients are scaled down to this global norm'),
  policy_loss_type: z
    .enum(policyLossTypes)
    .default('regular')
    .describe(
      'objective: `regular` is the clipped one of PPO, GRPO and DAPO; docs/engine.md has the formulas',
    ),
  loss_reduction: z
    .enum(lossReductions)
    .default('token_mean')
    .describe(
      'over a step’s sampled tokens at once, over samples of their token means, or over samples of their sums / `max_seq_len` (Dr. GRPO)',
    ),
  max_seq_len: count
    .exactOptional()
    .describe('of `seq_mean_token_sum_norm`; absent: `max_input_length` + `max_generate_length`'),
  eps_clip_low: share.default(0.2).describe('the probability ratio is clipped at 1 − this'),
  eps_clip_high: positive.default(0.2).describe('the probability ratio is clipped at 1 + this'),
  clip_ratio_c: z
    .number()
    .gt(1)
    .default(3)
    .describe('of `dual_clip`: where an advantage is below 0, the loss is at most this times its size'),
  cispo: z
    .strictObject({
      cispo_eps_clip_low: z.number().min(0).default(1).describe('the weight of a token is at least 1 − this'),
      cispo_eps_clip_high: z.number().min(0).default(5).describe('the weight of a token is at most 1 + this'),
    })
    .prefault({})
    .describe('settings of `policy_loss_type: cispo`'),
  sapo: z
    .strictObject({
      tau_pos: positive.default(1).describe('temperature of the gate for advantages above 0'),
      tau_neg: positive.default(1.05).describe('temperature of the gate for the others'),
    })
    .prefault({})
    .describe('settings of `policy_loss_type: sapo`'),
  use_kl_loss: z
    .boolean()
    .default(false)
    .describe(
      'adds a KL term against the policy that GRPO begins with, behind any warm start; with LoRA, which then excludes a warm start, it costs no memory',
    ),
  kl_loss_coef: z.number().min(0).max(10).default(0.001).describe('weight of the KL term'),
  kl_estimator_type: z.enum(klEstimators).default('k3').describe('estimator of the KL term, with gradients'),
  use_entropy_loss: z.boolean().default(false).describe('subtracts the entropy of the next token’s choice'),
  entropy_loss_coef: z.number().min(0).max(1).default(0.01).describe('weight of the entropy term'),
  use_tis: z
    .boolean()
    .default(false)
    .describe(
      'truncated importance sampling: tokens count by their probability before the update over that at sampling, which is 1 but where ' +
        'a rebased run applies what other numerics have sampled',
    ),
  tis_imp_ratio_cap: positive.default(2).describe('of `use_tis`: largest weight of a token'),
  advantage_estimator: z
    .enum(advantageEstimators)
    .default('grpo')
    .describe(
      '`grpo`: (reward − group mean) / (group std + `advantage_eps`); `rloo`: reward − mean of the others; `maxrl`: ' +
        '(reward − group mean) / (group mean + `advantage_eps`); `reinforce++`: whitened over the step’s sampled tokens',
    ),
  grpo_norm_by_std: z.boolean().default(true).describe('of `grpo`: divides by the standard deviation'),
  advantage_deviation: z
    .enum(['population', 'sample'])
    .default('population')
    .describe('the deviation’s squares are divided by n, or, as SkyRL does, by n − 1'),
  advantage_eps: positive
    .default(1e-6)
    .describe('added to a group’s standard deviation, of `maxrl` to its mean'),
  curriculum_floor: z
    .number()
    .min(0)
    .default(0)
    .describe(
      'task templates are drawn in proportion to p(1−p) + this, p the moving pass rate; 0 draws tasks uniformly',
    ),
  ckpt_interval: count.default(10).describe('steps between uploaded checkpoints'),
  eval_interval: count.default(10).describe('GRPO steps between evaluations'),
  target_pass_at_1: share
    .default(0)
    .describe('the run ends at the first interval evaluation that reaches this; 0 never'),
  block_after_s: z
    .number()
    .min(0)
    .exactOptional()
    .describe(
      'seconds for which the same failure is tried again, ever more seldom, before the run blocks; 0 tries it once more on ' +
        `another node where there is one, and blocks at once where that fails too; absent: ${usualBlockAfterSeconds}`,
    ),
});

const retention = z.strictObject({
  keep_last: count.default(2).describe('newest checkpoints that stay'),
  keep_every: countOrZero
    .default(0)
    .describe('the first checkpoint of every stretch of this many steps stays; 0 none for this reason'),
  keep_best: countOrZero
    .default(0)
    .describe('the checkpoints of this many steps with the best evaluations stay; 0 none for this reason'),
});

const fork = z.strictObject({
  run: runId.describe('run id; one of the same name rewinds that name'),
  step: countOrZero.describe('committed step after which it goes on'),
  rebase: z
    .strictObject({
      to: countOrZero.describe('last step whose logged batch is applied anew'),
      numerics: z
        .strictObject({
          backend: z.literal('cpu').describe('what computes'),
          version: count.describe('as `longhaul doctor` tells an engine’s'),
        })
        .describe('of the engines that compute them, and all further steps'),
    })
    .exactOptional()
    .describe('goes on with engines of other numerics: see `longhaul rebase`'),
});

const budget = z.strictObject({
  max_tokens: count.exactOptional().describe('tokens sampled in training'),
  max_wall_s: positive
    .exactOptional()
    .describe('seconds since the run’s first start, pauses and outages included'),
  max_gpu_hours: positive.exactOptional().describe('hours in which a node worked for the run'),
  max_usd: positive.exactOptional().describe('GPU hours times `usd_per_gpu_hour`'),
  usd_per_gpu_hour: positive.exactOptional().describe('price of a node’s hour'),
});

const placement = z.strictObject({
  priority: z
    .int()
    .min(-100)
    .max(100)
    .default(0)
    .describe('where nodes are few, runs with a higher one get them first'),
  nodes: count
    .max(64)
    .default(1)
    .describe(
      'nodes that may share the rollouts of a step; it goes on with as many as are free, at least one',
    ),
});

/** A name that W&B's web pages accept as a part of their addresses. */
const wandbName = z
  .string()
  // Not a `regex`, whose problem would repeat what may be a key.
  .refine((value) => /^[^/\\#?%:\s]{1,64}$/.test(value) && !/^[0-9a-f]{40}$/.test(value), {
    error:
      'must be a name of 1 to 64 characters without spaces and / \\ # ? % :, and never a key, which is given by WANDB_API_KEY',
  });

const tracking = z.strictObject({
  metrics_jsonl: z
    .boolean()
    .default(true)
    .describe('a file `metrics.jsonl` in the follower’s folder, also where there is no `tracking` at all'),
  tensorboard: z.boolean().default(false).describe('event files in the follower’s folder'),
  wandb: z
    .strictObject({
      project: wandbName.exactOptional().describe('absent: the run’s `project`'),
      entity: wandbName.exactOptional().describe('user or team; absent: that of the key'),
      name: wandbName
        .exactOptional()
        .describe('shown name; absent: the run’s id, which its id there always is'),
      mode: z
        .enum(['online', 'offline'])
        .default('online')
        .describe('`offline` keeps all in the follower’s folder, to be uploaded with `wandb sync`'),
    })
    .exactOptional()
    .describe('Weights & Biases; its key is in WANDB_API_KEY of the follower; absent: not there'),
});

const slackNews = ['checkpoints', 'evaluations', 'alerts', 'pauses', 'end'] as const satisfies SlackNews[];

const slack = z.strictObject({
  channel: z
    .string()
    // Not a `regex`, whose problem would repeat what may be the token.
    .refine((channel) => /^#?[^\s#@,:/<>"'&|]{1,80}$/u.test(channel) && !/^xox[a-z]-/i.test(channel), {
      error:
        'must be a channel’s name or id, such as "#training" or C0123456789, in which the bot is; a token is given by ' +
        'SLACK_BOT_TOKEN, never here',
    })
    .describe('channel, by name or id, that the bot is in; its token is in SLACK_BOT_TOKEN of the follower'),
  events: z
    .array(z.enum(slackNews))
    .exactOptional()
    .describe('what is told behind the beginning; absent: all of it'),
});

export const runSpecSchema = z.strictObject({
  name: name.describe('name of the run, unique in its store'),
  project: name.default('longhaul').describe('name in checkpoint keys'),
  seed: seed.default(1).describe('seed of weights, sampling and data order'),
  fork: fork
    .exactOptional()
    .describe('where the run begins, in place of the base model; absent: it does not fork'),
  model: model.describe('where the policy comes from'),
  data: data.describe('what it is trained and evaluated on'),
  environments: z.array(environment).min(1).describe('where episodes are played'),
  warm_start: z.array(sftPhase).default([]).describe('supervised phases before GRPO, in order'),
  generator: generator.prefault({}).describe('how episodes are sampled'),
  trainer: trainer.describe('how the policy is updated'),
  retention: retention
    .exactOptional()
    .describe(
      'which checkpoints stay in the store; absent: the newest two, that of each tenth evaluation, and the best one',
    ),
  budget: budget
    .exactOptional()
    .describe('what the run may use before it ends; may be raised for a new start; absent: no limit'),
  placement: placement
    .exactOptional()
    .describe(
      'how urgent the run is, and how many nodes it may use; may be another for a new start; absent: one node',
    ),
  tracking: tracking
    .exactOptional()
    .describe(
      'who is given the run’s figures; may be another for a new start; absent: a file `metrics.jsonl` alone',
    ),
  slack: slack
    .exactOptional()
    .describe('where is told what happens to the run; may be another for a new start; absent: nowhere'),
});
