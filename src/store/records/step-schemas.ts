// The schemas of a step's records: plan, episodes, batch, update, and the evidence of its attempts (R7–R12).
import { z } from 'zod';
import { klEstimators, lossReductions, missingIn, policyLossTypes } from '../../spec/loss.js';
import type { RecoveryCause, RestoreSource } from '../../spec/records/attempt-records.js';
import type { EpisodeRecord, LossPlan } from '../../spec/records/records.js';
import {
  count,
  counts,
  digest,
  digests,
  figures,
  numerics,
  oneOf,
  positive,
  sampling,
  share,
  text,
  time,
} from './schema-parts.js';

// Token ids and log-probs are long; a loop over them is an order of magnitude faster than a schema for each item.
const tokenIds = z.custom<number[]>(
  (value) =>
    Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && (item as number) >= 0),
  'is no list of token ids',
);
const logprobs = z.custom<number[]>(
  (value) => Array.isArray(value) && value.every((item) => Number.isFinite(item) && (item as number) <= 0),
  'is no list of log-probs: finite numbers ≤ 0',
);

const engine = z.strictObject({ build: text, incarnation: text });
const outcomes = z.array(z.array(z.number().nullable()));

const amount = z.number().nonnegative();
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
} satisfies Record<keyof LossPlan, z.ZodType>);
const loss = lossSettings.superRefine((settings, context) => {
  for (const key of missingIn(settings))
    context.addIssue({ code: 'custom', path: [key], message: `is missing, which ${settings.kind} has` });
});
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

const planBase = {
  schema: z.enum(['longhaul.plan/2', 'longhaul.plan/3']),
  run: text,
  step: positive,
  previous_state: digest,
  rebased: z.strictObject({ run: text, plan: digest }).exactOptional(),
  optimizer: z.strictObject({
    learning_rates: z.array(z.number().nonnegative()).min(1),
    adam_betas: z.tuple([share, share]),
    adam_eps: z.number().positive(),
    weight_decay: z.number().nonnegative(),
    max_grad_norm: z.number().positive(),
    reset_moments: z.boolean(),
  }),
  loss,
  reference: digest.exactOptional(),
  curriculum: z.strictObject({ pass_rates: z.record(z.string(), share), cursors: counts }),
  digests,
  numerics,
  control: count,
  owner: positive,
  run_digest: digest.exactOptional(),
  control_digest: digest.exactOptional(),
  owner_digest: digest.exactOptional(),
  sampling,
};
const slot = z.strictObject({
  slot: count,
  task_key: text,
  env_key: text,
  template: text,
  seed: z.number().int(),
});
const planOfAnyVersion = z.discriminatedUnion('kind', [
  z.strictObject({
    ...planBase,
    kind: z.literal('grpo'),
    slots: z.array(slot).min(1),
    samples_per_slot: positive,
    advantages,
  }),
  z.strictObject({
    ...planBase,
    kind: z.literal('sft'),
    phase: text,
    mini_batches: z.array(z.array(count).min(1)).min(1),
  }),
]);
const rootDigests = ['run_digest', 'control_digest', 'owner_digest'] as const;
export const plan = planOfAnyVersion.superRefine((record, context) => {
  const has = record.schema !== 'longhaul.plan/2';
  for (const key of rootDigests)
    if ((record[key] !== undefined) !== has)
      context.addIssue({ code: 'custom', path: [key], message: has ? 'is missing' : 'is not known' });
});

const outcome = z.discriminatedUnion('status', [
  z.strictObject({ status: z.literal('graded'), value: z.number() }),
  z.strictObject({ status: z.literal('unknown'), reason: text, failures: count }),
]);
const turn = z.strictObject({
  policy_step: count,
  start: count,
  end: count,
  tool: text.exactOptional(),
  error: z.boolean().exactOptional(),
});
const played = {
  plan: digest,
  state: digest,
  slot: count,
  sample: count,
  task_key: text,
  env_key: text,
  outcome,
  stop_reason: z.enum(['done', 'max_turns', 'length', 'unknown']),
  tokens: tokenIds,
  prompt_length: count,
  turns: z.array(turn),
  logprobs,
  metrics: z.strictObject({ turns: count, tool_calls: count, tool_errors: count }),
};
const playing = {
  attempt: count,
  incarnation: text,
  failures: counts,
  started_at: time,
  seconds: z.number().nonnegative(),
};
export const episode = z
  .discriminatedUnion('schema', [
    z.strictObject({
      schema: z.literal('longhaul.episode/2'),
      ...played,
      observed: z.strictObject({
        ...playing,
        execution: text.exactOptional(),
        failure: text.exactOptional(),
        explanation: text.exactOptional(),
      }),
    }),
    z.strictObject({
      schema: z.literal('longhaul.episode/1'),
      ...played,
      observed: z.strictObject(playing),
    }),
  ])
  .superRefine((record, context) => {
    const problem = transcriptProblem(record);
    if (problem) context.addIssue({ code: 'custom', message: problem });
  });

export const episodes = z.discriminatedUnion('schema', [
  z.strictObject({ schema: z.literal('longhaul.episodes/1'), run: text, step: positive, count }),
  z.strictObject({ schema: z.literal('longhaul.episodes/2'), state: digest, suite: digest, count }),
]);

export const batch = z.strictObject({
  schema: z.literal('longhaul.batch/2'),
  run: text,
  step: positive,
  plan: digest,
  previous_state: digest,
  inputs: digest,
  mini_batches: positive,
  loss_tokens: z.array(count),
  outcomes,
  metrics: figures,
});

export const update = z.strictObject({
  schema: z.enum(['longhaul.update/1', 'longhaul.update/2']),
  identity: z.strictObject({
    run: text,
    step: positive,
    kind: z.enum(['grpo', 'sft']),
    plan: digest,
    batch: digest,
    previous_state: digest,
    state: digest,
    step_id: digest,
    numerics,
    applied: z.union([z.literal(true), z.strictObject({ reason: text })]),
    outcomes,
    weights: digest.exactOptional(),
  }),
  observed: z.strictObject({
    metrics: figures,
    timings_ms: figures,
    engine,
    committed_at: time,
    worker: text.exactOptional(),
  }),
});

export const base = z.strictObject({
  schema: z.literal('longhaul.base/1'),
  identity: z.strictObject({
    run: text,
    step: z.literal(0),
    base_model: digest,
    state: digest,
    weights: digest.exactOptional(),
    numerics,
  }),
  observed: z.strictObject({
    engine,
    committed_at: time,
    parameters: z.strictObject({ model: positive, trained: positive }).exactOptional(),
  }),
});

const seconds = z.number().nonnegative();
const restoreSource = oneOf<RestoreSource>({ disk: true, store: true, base: true, held: true });
const recovery = z.strictObject({
  cause: oneOf<RecoveryCause>({
    engine_exit: true,
    worker_restart: true,
    orchestrator_restart: true,
    node_lost: true,
    node_drained: true,
    timeout: true,
    store: true,
    environment: true,
    temporal: true,
    diverged: true,
    error: true,
    placed: true,
    engine_shared: true,
  }),
  event: text,
  lost: z.strictObject({ seconds, tokens: count, episodes: count }),
  detection_seconds: seconds,
  down_seconds: seconds,
  restore: z.strictObject({ from: restoreSource, step: count, bytes: count, seconds }).exactOptional(),
  replay: z.strictObject({ steps: count, seconds }).exactOptional(),
});
export const attempt = z.strictObject({
  schema: z.enum(['longhaul.attempt/1', 'longhaul.attempt/2']),
  activity: text,
  attempt: text,
  n: positive,
  starts: z.array(text),
  not_begun: z.array(text).exactOptional(),
  discarded: z.array(text).exactOptional(),
  failures: z.array(z.strictObject({ verb: text, input: digest, message: text })).exactOptional(),
  observed: z.strictObject({
    node: text,
    pid: count,
    at: time,
    recoveries: z.array(recovery).exactOptional(),
    waited_seconds: seconds.exactOptional(),
  }),
});

/** What is wrong with an episode's token ranges, or null. */
function transcriptProblem(record: EpisodeRecord): string | null {
  if (record.prompt_length > record.tokens.length) {
    return `prompt_length ${record.prompt_length} is over the ${record.tokens.length} tokens`;
  }
  let position = record.prompt_length;
  let sampled = 0;
  for (const [i, { start, end }] of record.turns.entries()) {
    if (start < position || end < start || end > record.tokens.length) {
      return `turns[${i}] = [${start}, ${end}) does not fit between ${position} and ${record.tokens.length}`;
    }
    position = end;
    sampled += end - start;
  }
  return sampled === record.logprobs.length
    ? null
    : `${record.logprobs.length} log-probs for ${sampled} sampled tokens`;
}
