// The schema of a run spec: every key with its bounds, default and meaning; `model-schema.ts`, `data-schema.ts` and `trainer-schema.ts` have the
// keys of model, data and trainer. `run-spec.ts` names the types of the result, and `docs/run-spec.md` is generated from this schema.
import { z } from 'zod';
import {
  betas,
  count,
  countOrZero,
  inRange,
  name,
  notNegative,
  positive,
  runId,
  seed,
  share,
  text,
} from './fields.js';
import { toolFormatNames } from './tool-format-names.js';
import { data } from './data-schema.js';
import { environment } from './environments/environment-schema.js';
import { liveRanges } from './records/live-ranges.js';
import { model } from './model-schema.js';
import { engineNumerics } from './records/parts.js';
import { trainer } from './trainer-schema.js';

const sftPhase = z.strictObject({
  name: name.describe('name in logs and charts'),
  demonstrations: text.describe('their kind'),
  updates: count.describe('optimizer updates'),
  mini_batches_per_step: count.default(50).describe('optimizer updates per step'),
  mini_batch_size: count.default(16).describe('demonstrations per update'),
  lr: positive.max(1).default(1e-5).describe('learning rate after warm-up'),
  warmup_updates: countOrZero.default(0).describe('updates while the learning rate rises'),
  decay_share: share
    .default(0)
    .describe('last share of the updates, while the learning rate falls to a tenth'),
  adam_betas: betas.default([0.9, 0.999]).describe('decay of the two moments'),
});

const truncation = 'in training only; needs `truncated_sampling`';

const generator = z.strictObject({
  n_samples_per_prompt: inRange(liveRanges.n_samples_per_prompt).default(8).describe('samples per group'),
  temperature: inRange(liveRanges.temperature).default(1).describe('sampling temperature in training'),
  eval_n_samples_per_prompt: count
    .max(64)
    .exactOptional()
    .describe('samples of a task in evaluations, for pass@k; absent: 1'),
  eval_temperature: positive
    .max(10)
    .exactOptional()
    .describe('sampling temperature in evaluations; absent: 1'),
  max_turns: inRange(liveRanges.max_turns).default(10).describe('most turns per episode'),
  max_input_length: inRange(liveRanges.max_input_length).default(8_192).describe('most tokens before a turn'),
  max_generate_length: inRange(liveRanges.max_generate_length)
    .default(1_024)
    .describe('most tokens sampled in one turn'),
  max_sequence_length: inRange(liveRanges.max_sequence_length)
    .default(16_384)
    .describe('most tokens of a transcript'),
  tools_format: z
    .enum(['json', 'signatures', 'openai'])
    .default('json')
    .describe(
      '`signatures`: one line per tool, for small models; `openai`: OpenAI’s functions, as in SkyRL Fleet Training',
    ),
  tool_format: z
    .enum(['auto', ...toolFormatNames])
    .default('auto')
    .describe('how the model writes tool calls; `auto`: as its chat template teaches, else `hermes`'),
  chat_template_kwargs: z
    .record(
      z.string().regex(/^[A-Za-z_]\w*$/, 'is not a name of a template’s variable'),
      z.union([z.string(), z.number(), z.boolean()]).refine(
        (value) => !(typeof value === 'string' && /^(true|false)$/i.test(value.trim())),
        // Every text counts as true in Jinja.
        { error: 'is text, which a template takes for true: write it without quotation marks' },
      ),
    )
    .exactOptional()
    .describe('variables of the chat template, such as `enable_thinking: false`'),
  system_prompt: z
    .enum(['skyrl', 'short'])
    .default('skyrl')
    .describe('`short`: a few lines, for small models; signatures then lack the values of enumerations'),
  max_output_chars: count.default(10_000).describe('most characters of a tool result that the model sees'),
  max_episode_failures: countOrZero
    .default(3)
    .describe('charged failures that make an episode’s outcome unknown'),
  max_unknown_share: z
    .number()
    .min(0)
    .max(1)
    .default(0.5)
    .describe('a larger share of unknown outcomes, in an evaluation or two steps in a row, blocks the run'),
  stop: z
    .array(text)
    .min(1)
    .max(16)
    .exactOptional()
    .describe('stop strings: a turn also ends when its text contains one'),
  top_p: positive.max(1).exactOptional().describe(truncation),
  top_k: count.exactOptional().describe(truncation),
  truncated_sampling: z
    .boolean()
    .exactOptional()
    .describe(
      'allows `top_p` and `top_k`, which bias the gradient: log-probs stay those of the full distribution',
    ),
  max_wait_s: positive.default(3_600).describe('longest outage of an environment before the run blocks'),
  // Less than the time without progress that stops an attempt's heartbeat (`workers/attempt/activity-guard.ts`): a call reports no
  // progress.
  call_timeout_s: positive.max(900).default(60).describe('time-out of an environment call'),
});

const retention = z.strictObject({
  keep_last: count.default(2).describe('newest checkpoints to keep'),
  keep_every: countOrZero
    .default(0)
    .describe('keep the first checkpoint from each multiple of N steps on; 0: none'),
  keep_best: countOrZero.default(0).describe('checkpoints with the best evaluations to keep'),
});

const fork = z.strictObject({
  run: runId.describe('id of the parent; one with this run’s own name makes a rewind'),
  step: countOrZero.describe('the parent’s step after which this run begins'),
  rebase: z
    .strictObject({
      to: countOrZero.describe('last step to apply again'),
      numerics: z
        .strictObject({
          backend: z.enum(engineNumerics).describe('kind of engine'),
          version: count.describe('version that `longhaul doctor` shows'),
        })
        .describe('numerics of the engines after the rebase'),
    })
    .exactOptional()
    .describe('set by `longhaul rebase`'),
});

const usdPerMillion = z.strictObject({
  train: notNegative.describe('price of training tokens'),
  prefill: notNegative.describe('price of prompt tokens of all turns'),
  sample: notNegative.describe('price of sampled tokens'),
});

const budget = z.strictObject({
  max_tokens: count.exactOptional().describe('tokens sampled in training'),
  max_wall_s: positive.exactOptional().describe('time since the first start, with pauses and outages'),
  max_gpu_hours: positive.exactOptional().describe('hours that nodes work'),
  max_usd: positive.exactOptional().describe('cost of hours and tokens'),
  usd_per_gpu_hour: positive.exactOptional().describe('price of a node’s hour'),
  usd_per_million: usdPerMillion
    .exactOptional()
    .describe('with `model.served`: [prices of a million tokens](tinker.md#what-a-step-costs)'),
});

const placement = z.strictObject({
  priority: z.int().min(-100).max(100).default(0).describe('higher ones get nodes first'),
  nodes: count.max(64).default(1).describe('most nodes that share a step’s rollouts'),
});

/** A name that W&B's web pages accept in their addresses. */
const wandbName = z
  .string()
  // `refine`, not `regex`: the message of `regex` would repeat the text, which may be a key.
  .refine((value) => /^[^/\\#?%:\s]{1,64}$/.test(value) && !/^[0-9a-f]{40}$/.test(value), {
    error:
      'must be a name of 1 to 64 characters without spaces and / \\ # ? % :, and never a key: put the key into WANDB_API_KEY',
  });

const tracking = z.strictObject({
  metrics_jsonl: z.boolean().default(true).describe('`metrics.jsonl` in the follower’s folder'),
  tensorboard: z.boolean().default(false).describe('event files in the follower’s folder'),
  wandb: z
    .strictObject({
      project: wandbName.exactOptional().describe('project; absent: the run’s project'),
      entity: wandbName.exactOptional().describe('user or team; absent: the user of the key'),
      name: wandbName.exactOptional().describe('display name; absent: the run’s id'),
      mode: z
        .enum(['online', 'offline'])
        .default('online')
        .describe('`offline`: writes to the follower’s folder, for `wandb sync`'),
    })
    .exactOptional()
    .describe('Weights & Biases; the follower has `WANDB_API_KEY`'),
});

const slack = z.strictObject({
  channel: z
    .string()
    // `refine`, not `regex`: the message of `regex` would repeat the text, which may be the token.
    .refine((channel) => /^#?[^\s#@,:/<>"'&|]{1,80}$/u.test(channel) && !/^xox[a-z]-/i.test(channel), {
      error:
        'must be the name or id of a channel that the bot is in, such as "#training" or C0123456789; put the token into ' +
        'SLACK_BOT_TOKEN, never here',
    })
    .describe('name or id of a channel that the bot is in; the follower has `SLACK_BOT_TOKEN`'),
  events: z
    .array(z.enum(['checkpoints', 'evaluations', 'alerts', 'pauses', 'end']))
    .exactOptional()
    .describe('events posted in the thread; absent: all'),
});

export const runSpecSchema = z.strictObject({
  name: name.describe('unique in its store'),
  project: name.default('longhaul').describe('its name in checkpoint keys'),
  seed: seed.default(1).describe('seed of weights, sampling and order'),
  fork: fork.exactOptional().describe('continues another run'),
  model: model.describe('what is trained'),
  data: data.describe('tasks and demonstrations'),
  environments: z.array(environment).min(1).describe('where episodes are played'),
  warm_start: z.array(sftPhase).default([]).describe('supervised phases before GRPO'),
  generator: generator.prefault({}).describe('how episodes are sampled'),
  trainer: trainer.describe('how the policy is updated'),
  retention: retention
    .exactOptional()
    .describe('checkpoints to keep; absent: the newest two, that of each tenth evaluation, and the best'),
  budget: budget.exactOptional().describe('limits at which the run stops; absent: none'),
  placement: placement.exactOptional().describe('priority and nodes'),
  tracking: tracking.exactOptional().describe('where metrics are written; absent: `metrics.jsonl`'),
  slack: slack.exactOptional().describe('Slack channel for messages; absent: none'),
});
