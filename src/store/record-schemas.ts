// One strict schema for every kind of record. A member that is not known is refused: a record means what it says, whole.
import { z } from 'zod';
import type {
  AttemptRecord,
  BaseRecord,
  BatchIdentity,
  CheckpointManifest,
  CollectionRecord,
  ControlRecord,
  DatasetManifest,
  EpisodeRecord,
  EvaluationResult,
  NameRecord,
  OwnerRecord,
  PlanRecord,
  RefRecord,
  RunRecord,
  SuiteRecord,
  UpdateRecord,
} from '../spec/records.js';

/** Every kind of record with its type. `base` is `steps/000000/update.json`; `batch` is a batch file's identity. */
export interface RecordTypes {
  run: RunRecord;
  plan: PlanRecord;
  episode: EpisodeRecord;
  batch: BatchIdentity;
  update: UpdateRecord;
  base: BaseRecord;
  attempt: AttemptRecord;
  owner: OwnerRecord;
  control: ControlRecord;
  name: NameRecord;
  ref: RefRecord;
  gc: CollectionRecord;
  dataset: DatasetManifest;
  checkpoint: CheckpointManifest;
  suite: SuiteRecord;
  evaluation: EvaluationResult;
}
export type RecordKind = keyof RecordTypes;

const text = z.string();
const digest = z.string().regex(/^[0-9a-f]{64}$/, 'is no sha256: 64 lower-case hex digits');
const count = z.number().int().nonnegative();
const positive = z.number().int().positive();
const share = z.number().min(0).max(1);
const time = z.iso.datetime();
const figures = z.record(z.string(), z.number());
const counts = z.record(z.string(), count);

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

const numerics = z.strictObject({ backend: z.literal('cpu'), version: positive });
const fileEntry = z.strictObject({ path: text.min(1), size: count, sha256: digest });
const digests = z.strictObject({
  tokenizer: digest,
  chat_template: digest,
  tool_parser: text,
  dataset: digest,
});
const engine = z.strictObject({ build: text, incarnation: text });
const outcomes = z.array(z.array(z.number().nullable()));
const sampling = z.strictObject({
  temperature: z.number().nonnegative(),
  max_turns: positive,
  max_input_length: positive,
  max_generate_length: positive,
  max_sequence_length: positive,
  tools_format: z.enum(['json', 'signatures']),
  system_prompt: z.enum(['skyrl', 'short']),
  max_output_chars: positive,
  max_episode_failures: count,
});

const run = z.strictObject({
  schema: z.literal('longhaul.run/1'),
  run: text,
  name: text,
  // Checked in full by the spec's own schema where a run starts; a stored spec may be older than the newest setting.
  spec: z.custom<RunRecord['spec']>(
    isRunSpec,
    'is no run spec with name, project, seed, model, generator and trainer',
  ),
  seed: z.number().int(),
  base_model: digest,
  tokenizer: digest,
  chat_template: digest,
  tool_parser: text,
  dataset: z.strictObject({ name: text, version: text, digest }),
  lineage: z.strictObject({ run: text, step: count, state: digest }).nullable(),
  observed: z.strictObject({ started_at: time }),
});

const planBase = {
  schema: z.literal('longhaul.plan/1'),
  run: text,
  step: positive,
  previous_state: digest,
  optimizer: z.strictObject({
    learning_rates: z.array(z.number().nonnegative()).min(1),
    adam_betas: z.tuple([share, share]),
    adam_eps: z.number().positive(),
    weight_decay: z.number().nonnegative(),
    max_grad_norm: z.number().positive(),
    reset_moments: z.boolean(),
  }),
  loss: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('cross_entropy') }),
    z.strictObject({
      kind: z.literal('clipped_policy'),
      eps_clip_low: z.number().nonnegative(),
      eps_clip_high: z.number().nonnegative(),
      advantage_eps: z.number().nonnegative(),
    }),
  ]),
  curriculum: z.strictObject({ pass_rates: z.record(z.string(), share), cursors: counts }),
  digests,
  numerics,
  control: count,
  owner: positive,
  sampling,
};
const slot = z.strictObject({
  slot: count,
  task_key: text,
  env_key: text,
  template: text,
  seed: z.number().int(),
});
const plan = z.discriminatedUnion('kind', [
  z.strictObject({
    ...planBase,
    kind: z.literal('grpo'),
    slots: z.array(slot).min(1),
    samples_per_slot: positive,
  }),
  z.strictObject({
    ...planBase,
    kind: z.literal('sft'),
    phase: text,
    mini_batches: z.array(z.array(count).min(1)).min(1),
  }),
]);

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
const episode = z
  .strictObject({
    schema: z.literal('longhaul.episode/1'),
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
    observed: z.strictObject({
      attempt: count,
      incarnation: text,
      failures: counts,
      started_at: time,
      seconds: z.number().nonnegative(),
    }),
  })
  .superRefine((record, context) => {
    const problem = transcriptProblem(record);
    if (problem) context.addIssue({ code: 'custom', message: problem });
  });

const batch = z.strictObject({
  schema: z.literal('longhaul.batch/1'),
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

const update = z.strictObject({
  schema: z.literal('longhaul.update/1'),
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
  }),
  observed: z.strictObject({ metrics: figures, timings_ms: figures, engine, committed_at: time }),
});

const base = z.strictObject({
  schema: z.literal('longhaul.base/1'),
  identity: z.strictObject({ run: text, step: z.literal(0), base_model: digest, state: digest, numerics }),
  observed: z.strictObject({ engine, committed_at: time }),
});

const attempt = z.strictObject({
  schema: z.literal('longhaul.attempt/1'),
  activity: text,
  attempt: text,
  n: positive,
  starts: z.array(text),
  failures: z.array(z.strictObject({ verb: text, input: digest, message: text })).exactOptional(),
  observed: z.strictObject({ node: text, pid: count, at: time }),
});

const owner = z.strictObject({
  schema: z.literal('longhaul.owner/1'),
  n: positive,
  address: text,
  clusterId: text,
  namespace: text,
  workflowId: text,
  firstExecutionRunId: text,
  observed: z.strictObject({
    at: time,
    by: text,
    environment_urls: z.record(text, text.nullable()).exactOptional(),
  }),
});

const control = z.strictObject({
  schema: z.literal('longhaul.control/1'),
  n: positive,
  update_id: text.min(1),
  change: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('pause') }),
    z.strictObject({ kind: z.literal('resume') }),
    z.strictObject({ kind: z.literal('stopAfter'), step: count }),
    z.strictObject({
      kind: z.literal('setHyperparameters'),
      lr: z.number().nonnegative().exactOptional(),
      temperature: z.number().nonnegative().exactOptional(),
    }),
    z.strictObject({
      kind: z.literal('quarantine'),
      key: text.min(1),
      also: z.array(text.min(1)).exactOptional(),
    }),
  ]),
  observed: z.strictObject({ at: time }),
});

const name = z.strictObject({ schema: z.literal('longhaul.name/1'), n: positive, run: text });

const ref = z.strictObject({
  schema: z.literal('longhaul.ref/1'),
  run: text,
  user: text.min(1),
  kind: z.enum(['fork', 'sweep', 'audit']),
  step: count,
  observed: z.strictObject({ at: time }),
});

const gc = z.strictObject({
  schema: z.literal('longhaul.gc/1'),
  n: positive,
  run: text,
  checkpoints: z.array(count),
  episodes: z.array(positive),
  grace_s: z.number().nonnegative(),
  observed: z.strictObject({ at: time, by: text }),
});

const dataset = z.strictObject({
  schema: z.literal('longhaul.dataset/1'),
  name: text,
  version: text,
  files: z.array(fileEntry),
  tasks: count,
  train_tasks: count,
  held_out_tasks: count,
  demonstrations: counts,
});

const checkpoint = z.strictObject({
  schema: z.literal('longhaul.checkpoint/1'),
  run: text,
  step: count,
  state: digest,
  numerics,
  files: z.array(fileEntry).min(1),
});

const suite = z.strictObject({
  schema: z.literal('longhaul.suite/1'),
  name: text,
  tasks: z
    .array(z.strictObject({ task_key: text, env_key: text, template: text, seed: z.number().int() }))
    .min(1),
  samples_per_task: positive,
  sampling,
  seed: z.number().int(),
  digests,
  numerics,
});

const evaluation = z.strictObject({
  schema: z.literal('longhaul.evaluation/1'),
  state: digest,
  suite: digest,
  suite_name: text,
  pass_at_1: share,
  graded: count,
  unknown: count,
  environments: z.record(
    z.string(),
    z.strictObject({
      pass_at_1: share,
      graded: count,
      unknown: count,
      mean_turns: z.number().nonnegative(),
      mean_tool_calls: z.number().nonnegative(),
      tool_errors: count,
    }),
  ),
  templates: z.record(z.string(), z.strictObject({ passed: count, graded: count })),
  observed: z.strictObject({
    run: text,
    step: count,
    seconds: z.number().nonnegative(),
    committed_at: time,
    metrics: figures,
  }),
});

export const recordSchemas: { [Kind in RecordKind]: z.ZodType<RecordTypes[Kind]> } = {
  run,
  plan,
  episode,
  batch,
  update,
  base,
  attempt,
  owner,
  control,
  name,
  ref,
  gc,
  dataset,
  checkpoint,
  suite,
  evaluation,
};

/** The newest version of each kind that this code knows. */
export const schemaVersions: Record<RecordKind, number> = {
  run: 1,
  plan: 1,
  episode: 1,
  batch: 1,
  update: 1,
  base: 1,
  attempt: 1,
  owner: 1,
  control: 1,
  name: 1,
  ref: 1,
  gc: 1,
  dataset: 1,
  checkpoint: 1,
  suite: 1,
  evaluation: 1,
};

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

function isRunSpec(value: unknown): boolean {
  const spec = value as Record<string, unknown> | null;
  return (
    typeof spec === 'object' &&
    spec !== null &&
    typeof spec.name === 'string' &&
    typeof spec.project === 'string' &&
    typeof spec.seed === 'number' &&
    ['model', 'generator', 'trainer'].every((part) => typeof spec[part] === 'object' && spec[part] !== null)
  );
}
