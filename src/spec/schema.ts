// The schema of a run spec: every key with its bounds, default and meaning; `model-schema.ts` has the model's keys. `run-spec.ts` names the
// types of the result, and `docs/run-spec.md` is generated from this schema.
import { z } from 'zod';
import { count, countOrZero, name, positive, runId, seed, text } from './fields.js';
import { advantageEstimators, klEstimators, lossReductions, policyLossTypes } from './records/loss-plan.js';
import { model } from './model-schema.js';
import { secretInUrl } from '../base/secrets.js';

/** Default of `trainer.block_after_s`: within this time a driver restarts, or another process frees the memory that it took. */
export const usualBlockAfterSeconds = 600;

const share = z.number().min(0).max(1);
const betas = z.tuple([z.number().min(0).lt(1), z.number().min(0).lt(1)]);

const builtin = z.strictObject({
  apps: z
    .array(z.enum(['tracker', 'booking']))
    .min(1)
    .describe('apps that tasks are made for'),
  seed: seed.default(1).describe('of these tasks; not the run’s'),
  train_tasks: count.default(20_000).describe('tasks to train on'),
  held_out_tasks: count.default(512).describe('tasks for evaluation only'),
  drill_demonstrations: countOrZero.default(0).describe('demonstrations of kind `drill`'),
  teacher_demonstrations: countOrZero.default(0).describe('demonstrations of kind `teacher`'),
});

const data = z.strictObject({
  tasks: text.exactOptional().describe('JSONL file of tasks; excludes `builtin`'),
  demonstrations: text.exactOptional().describe('JSONL file of demonstrations'),
  builtin: builtin.exactOptional().describe('tasks of the built-in apps; excludes `tasks`'),
  eval_tasks: count.default(128).describe('held-out tasks of each interval evaluation'),
  final_eval_tasks: count.default(256).describe('the same before and after GRPO'),
});

const environment = z.strictObject({
  env_key: name.describe('what tasks name'),
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
    // `refine`, not `regex`: the message of `regex` would repeat the text, which may be the token.
    .refine((variable) => /^[A-Z_][A-Z0-9_]{0,63}$/.test(variable), {
      error:
        'must be the name of an environment variable, in capitals, such as TRACKER_TOKEN, and never the token itself: ' +
        'export the variable where the workers run',
    })
    .exactOptional()
    .describe('name of the variable that holds the grading token'),
  fault_rate: share.default(0).describe('share of calls that the built-in server makes fail'),
  tool_error_rate: share.default(0).describe('share of tool calls that it answers with an error'),
});

const sftPhase = z.strictObject({
  name: name.describe('in logs and charts'),
  demonstrations: text.describe('their kind'),
  updates: count.describe('optimizer updates'),
  mini_batches_per_step: count.default(50).describe('updates of a step'),
  mini_batch_size: count.default(16).describe('demonstrations of an update'),
  lr: positive.max(1).default(1e-5).describe('after warm-up'),
  warmup_updates: countOrZero.default(0).describe('updates with a rising rate'),
  decay_share: share.default(0).describe('last share of updates, in which the rate falls to a tenth'),
  adam_betas: betas.default([0.9, 0.999]).describe('decay of the moments'),
});

const truncation = 'in training; evaluations draw from the whole distribution; needs `truncated_sampling`';

const generator = z.strictObject({
  n_samples_per_prompt: count.min(2).default(8).describe('samples of a group'),
  temperature: positive.max(10).default(1).describe('in training; evaluations sample at 1'),
  max_turns: count.max(1000).default(10).describe('turns of an episode'),
  max_input_length: count.default(8_192).describe('tokens before a turn'),
  max_generate_length: count.default(1_024).describe('tokens of one turn'),
  max_sequence_length: count.default(16_384).describe('tokens of a transcript'),
  tools_format: z
    .enum(['json', 'signatures'])
    .default('json')
    .describe('`signatures`: a line a tool, for small models'),
  system_prompt: z
    .enum(['skyrl', 'short'])
    .default('skyrl')
    .describe('`short`: a few lines, for small models'),
  max_output_chars: count.default(10_000).describe('of a tool result, for the model'),
  max_episode_failures: countOrZero.default(3).describe('charged failures before an outcome is unknown'),
  max_unknown_share: z
    .number()
    .min(0)
    .max(1)
    .default(0.5)
    .describe('more unknown outcomes in an evaluation, or in two steps in a row, block the run'),
  stop: z.array(text).min(1).max(16).exactOptional().describe('a turn also ends when it completes one'),
  top_p: positive.max(1).exactOptional().describe(truncation),
  top_k: count.exactOptional().describe(truncation),
  truncated_sampling: z
    .boolean()
    .exactOptional()
    .describe(
      'accepts `top_p`, `top_k`, which bias the gradient: log-probs stay those of the whole distribution',
    ),
  max_wait_s: positive.default(3_600).describe('longest outage before the run blocks'),
  // Less than the time without progress that stops an attempt's heartbeat (`workers/attempt/activity-guard.ts`): a call reports no
  // progress.
  call_timeout_s: positive.max(900).default(60).describe('longest environment call'),
});

export const defaultMaxGradNorm = 1;

const trainer = z.strictObject({
  train_batch_size: count.default(32).describe('groups in a GRPO step'),
  max_training_steps: count.describe('GRPO steps; a warm start’s come on top'),
  lr: positive.max(1).default(1e-6).describe('after warm-up'),
  warmup_steps: countOrZero.default(0).describe('GRPO steps with a rising rate'),
  adam_betas: betas.default([0.9, 0.999]).describe('decay of the moments'),
  adam_eps: positive.default(1e-8).describe('added to the root of the second moment'),
  weight_decay: z.number().min(0).default(0.01).describe('decoupled'),
  max_grad_norm: positive.default(defaultMaxGradNorm).describe('clips the global norm'),
  policy_loss_type: z
    .enum(policyLossTypes)
    .default('regular')
    .describe('`regular` clips as PPO, GRPO and DAPO; [formulas](engine.md#losses)'),
  loss_reduction: z
    .enum(lossReductions)
    .default('token_mean')
    .describe('mean over tokens, over samples’ means, or over samples’ sums / `max_seq_len` (Dr. GRPO)'),
  max_seq_len: count
    .exactOptional()
    .describe('of the last; absent: `max_input_length` + `max_generate_length`'),
  eps_clip_low: share.default(0.2).describe('the ratio is clipped at 1 − this'),
  eps_clip_high: positive.default(0.2).describe('the ratio is clipped at 1 + this'),
  clip_ratio_c: z
    .number()
    .gt(1)
    .default(3)
    .describe('of `dual_clip`: bounds the loss of a negative advantage'),
  cispo: z
    .strictObject({
      cispo_eps_clip_low: z.number().min(0).default(1).describe('a weight is at least 1 − this'),
      cispo_eps_clip_high: z.number().min(0).default(5).describe('a weight is at most 1 + this'),
    })
    .prefault({})
    .describe('settings of `policy_loss_type: cispo`'),
  sapo: z
    .strictObject({
      tau_pos: positive.default(1).describe('gate temperature for advantages above 0'),
      tau_neg: positive.default(1.05).describe('for the others'),
    })
    .prefault({})
    .describe('settings of `policy_loss_type: sapo`'),
  use_kl_loss: z
    .boolean()
    .default(false)
    .describe('KL term against the policy that GRPO begins with; with LoRA it excludes a warm start'),
  kl_loss_coef: z.number().min(0).max(10).default(0.001).describe('its weight'),
  kl_estimator_type: z.enum(klEstimators).default('k3').describe('its estimator'),
  use_entropy_loss: z.boolean().default(false).describe('entropy bonus'),
  entropy_loss_coef: z.number().min(0).max(1).default(0.01).describe('its weight'),
  use_tis: z
    .boolean()
    .default(false)
    .describe('truncated importance sampling; weights are 1 except after a rebase'),
  tis_imp_ratio_cap: positive.default(2).describe('its largest weight'),
  advantage_estimator: z
    .enum(advantageEstimators)
    .default('grpo')
    .describe('[formulas](records.md#the-batch-file-longhaulbatch2)'),
  grpo_norm_by_std: z.boolean().default(true).describe('of `grpo`: divide by the deviation'),
  advantage_deviation: z
    .enum(['population', 'sample'])
    .default('population')
    .describe('divides by n, or like SkyRL by n − 1'),
  advantage_eps: positive.default(1e-6).describe('added to the deviation, of `maxrl` to the mean'),
  curriculum_floor: z
    .number()
    .min(0)
    .default(0)
    .describe('templates are drawn by pass rate p, as p(1−p) + this; 0: uniformly'),
  save_every: count
    .exactOptional()
    .describe('with `model.served`: steps between the states that the server saves; absent: 1'),
  ckpt_interval: count.default(10).describe('steps between uploaded checkpoints'),
  eval_interval: count.default(10).describe('GRPO steps between evaluations'),
  target_pass_at_1: share
    .default(0)
    .describe('an interval evaluation that reaches this ends the run; 0: never'),
  block_after_s: z
    .number()
    .min(0)
    .exactOptional()
    .describe(
      `how long a failure repeats before the run blocks; 0: until another node fails too; absent: ${usualBlockAfterSeconds}`,
    ),
});

const retention = z.strictObject({
  keep_last: count.default(2).describe('newest'),
  keep_every: countOrZero.default(0).describe('every so many steps; 0: none'),
  keep_best: countOrZero.default(0).describe('best evaluated; 0: none'),
});

const fork = z.strictObject({
  run: runId.describe('run id; of the same name: a rewind'),
  step: countOrZero.describe('after which it goes on'),
  rebase: z
    .strictObject({
      to: countOrZero.describe('last step whose batch is applied again'),
      numerics: z
        .strictObject({
          backend: z.literal('cpu').describe('what computes'),
          version: count.describe('as `longhaul doctor` says'),
        })
        .describe('of the engines from then on'),
    })
    .exactOptional()
    .describe('made by `longhaul rebase`'),
});

const notNegative = z.number().min(0);

const usdPerMillion = z.strictObject({
  train: notNegative.describe('training tokens'),
  prefill: notNegative.describe('prompt tokens of all turns'),
  sample: notNegative.describe('sampled tokens'),
});

const budget = z.strictObject({
  max_tokens: count.exactOptional().describe('tokens sampled in training'),
  max_wall_s: positive.exactOptional().describe('since the first start, pauses and outages included'),
  max_gpu_hours: positive.exactOptional().describe('hours of nodes at work'),
  max_usd: positive.exactOptional().describe('hours and tokens at their prices'),
  usd_per_gpu_hour: positive.exactOptional().describe('price of an hour'),
  usd_per_million: usdPerMillion
    .exactOptional()
    .describe('with `model.served`: [prices of tokens](tinker.md#what-a-step-costs)'),
});

const placement = z.strictObject({
  priority: z.int().min(-100).max(100).default(0).describe('higher ones get nodes first'),
  nodes: count.max(64).default(1).describe('most nodes for a step’s rollouts'),
});

/** A name that W&B's web pages accept in their addresses. */
const wandbName = z
  .string()
  // `refine`, not `regex`: the message of `regex` would repeat the text, which may be a key.
  .refine((value) => /^[^/\\#?%:\s]{1,64}$/.test(value) && !/^[0-9a-f]{40}$/.test(value), {
    error:
      'must be a name of 1 to 64 characters without spaces and / \\ # ? % :, and never a key, which is given by WANDB_API_KEY',
  });

const tracking = z.strictObject({
  metrics_jsonl: z.boolean().default(true).describe('`metrics.jsonl` in the follower’s folder'),
  tensorboard: z.boolean().default(false).describe('event files in the follower’s folder'),
  wandb: z
    .strictObject({
      project: wandbName.exactOptional().describe('absent: the run’s'),
      entity: wandbName.exactOptional().describe('user or team; absent: the key’s'),
      name: wandbName.exactOptional().describe('display name; absent: the run’s id'),
      mode: z
        .enum(['online', 'offline'])
        .default('online')
        .describe('`offline`: in the follower’s folder, for `wandb sync`'),
    })
    .exactOptional()
    .describe('Weights & Biases; key: the follower’s `WANDB_API_KEY`'),
});

const slack = z.strictObject({
  channel: z
    .string()
    // `refine`, not `regex`: the message of `regex` would repeat the text, which may be the token.
    .refine((channel) => /^#?[^\s#@,:/<>"'&|]{1,80}$/u.test(channel) && !/^xox[a-z]-/i.test(channel), {
      error:
        'must be a channel’s name or id, such as "#training" or C0123456789, in which the bot is; a token is given by ' +
        'SLACK_BOT_TOKEN, never here',
    })
    .describe('name or id, with the bot in it; token: the follower’s `SLACK_BOT_TOKEN`'),
  events: z
    .array(z.enum(['checkpoints', 'evaluations', 'alerts', 'pauses', 'end']))
    .exactOptional()
    .describe('after the first message; absent: all'),
});

export const runSpecSchema = z.strictObject({
  name: name.describe('unique in its store'),
  project: name.default('longhaul').describe('name in checkpoint keys'),
  seed: seed.default(1).describe('seed of weights, sampling and data order'),
  fork: fork.exactOptional().describe('goes on after another run’s step'),
  model: model.describe('where the policy comes from'),
  data: data.describe('what it is trained and evaluated on'),
  environments: z.array(environment).min(1).describe('where episodes are played'),
  warm_start: z.array(sftPhase).default([]).describe('supervised phases before GRPO, in order'),
  generator: generator.prefault({}).describe('how episodes are sampled'),
  trainer: trainer.describe('how the policy is updated'),
  retention: retention
    .exactOptional()
    .describe('checkpoints to keep; absent: the newest two, each tenth evaluation’s, the best'),
  budget: budget.exactOptional().describe('limits; absent: none'),
  placement: placement.exactOptional().describe('priority and nodes'),
  tracking: tracking.exactOptional().describe('who gets figures; absent: `metrics.jsonl`'),
  slack: slack.exactOptional().describe('where it reports; absent: nowhere'),
});
