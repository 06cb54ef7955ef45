// One strict schema for every kind of record. A member that is not known is refused: a record means what it says, whole.
import { z } from 'zod';
import type {
  EvaluatedRecord,
  EvaluationResult,
  SuiteRecord,
} from '../../spec/records/evaluation-records.js';
import type { PassRate } from '../../spec/pass-rate.js';
import type { AttemptRecord } from '../../spec/records/attempt-records.js';
import type { ControlRecord, Hyperparameters } from '../../spec/records/control-records.js';
import type {
  BaseRecord,
  BatchIdentity,
  CheckpointManifest,
  CollectionRecord,
  DatasetManifest,
  EpisodeRecord,
  EpisodesHeader,
  NameRecord,
  NoticeRecord,
  OwnerRecord,
  PlanRecord,
  RefRecord,
  RunRecord,
  UpdateRecord,
  WeightsManifest,
} from '../../spec/records/records.js';
import type { SweepRecord, TallyRecord } from '../../spec/records/sweep-record.js';
import {
  count,
  counts,
  digest,
  digests,
  figures,
  numerics,
  positive,
  sampling,
  share,
  text,
  time,
} from './schema-parts.js';
import { attempt, base, batch, episode, episodes, plan, update } from './step-schemas.js';
import { sweepSchema, tally } from './sweep-schemas.js';

/**
 * Every kind of record with its type. `base` is `steps/000000/update.json`; `batch` is a batch file's identity, `episodes` the
 * first line of a file of folded ones.
 */
export interface RecordTypes {
  run: RunRecord;
  plan: PlanRecord;
  episode: EpisodeRecord;
  episodes: EpisodesHeader;
  batch: BatchIdentity;
  update: UpdateRecord;
  base: BaseRecord;
  attempt: AttemptRecord;
  owner: OwnerRecord;
  control: ControlRecord;
  name: NameRecord;
  notice: NoticeRecord;
  ref: RefRecord;
  gc: CollectionRecord;
  dataset: DatasetManifest;
  checkpoint: CheckpointManifest;
  weights: WeightsManifest;
  suite: SuiteRecord;
  evaluation: EvaluationResult;
  evaluated: EvaluatedRecord;
  sweep: SweepRecord;
  tally: TallyRecord;
}
export type RecordKind = keyof RecordTypes;

const run = z.strictObject({
  schema: z.enum(['longhaul.run/1', 'longhaul.run/2']),
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
  lineage: z
    .strictObject({
      run: text,
      step: count,
      state: digest,
      rebase: z.strictObject({ to: count, numerics }).exactOptional(),
    })
    .nullable(),
  observed: z.strictObject({ started_at: time }),
});

const owner = z.strictObject({
  schema: z.enum(['longhaul.owner/1', 'longhaul.owner/2']),
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
    budget: z
      .strictObject({
        max_tokens: z.number().exactOptional(),
        max_wall_s: z.number().exactOptional(),
        max_gpu_hours: z.number().exactOptional(),
        max_usd: z.number().exactOptional(),
        usd_per_gpu_hour: z.number().exactOptional(),
      })
      .exactOptional(),
    tracking: z
      .strictObject({
        metrics_jsonl: z.boolean(),
        tensorboard: z.boolean(),
        wandb: z
          .strictObject({
            project: text.exactOptional(),
            entity: text.exactOptional(),
            name: text.exactOptional(),
            mode: z.enum(['online', 'offline']),
          })
          .exactOptional(),
      })
      .exactOptional(),
    slack: z
      .strictObject({
        channel: text,
        events: z.array(z.enum(['checkpoints', 'evaluations', 'alerts', 'pauses', 'end'])).exactOptional(),
      })
      .exactOptional(),
  }),
});

const hyperparameters = {
  lr: z.number().nonnegative().exactOptional(),
  eps_clip_low: z.number().nonnegative().exactOptional(),
  eps_clip_high: z.number().nonnegative().exactOptional(),
  kl_loss_coef: z.number().nonnegative().exactOptional(),
  entropy_loss_coef: z.number().nonnegative().exactOptional(),
  train_batch_size: positive.exactOptional(),
  ckpt_interval: positive.exactOptional(),
  eval_interval: positive.exactOptional(),
  temperature: z.number().nonnegative().exactOptional(),
  n_samples_per_prompt: positive.exactOptional(),
  max_turns: positive.exactOptional(),
  max_input_length: positive.exactOptional(),
  max_generate_length: positive.exactOptional(),
  max_sequence_length: positive.exactOptional(),
} satisfies Record<keyof Hyperparameters, z.ZodType>;

const control = z.strictObject({
  schema: z.enum(['longhaul.control/1', 'longhaul.control/2']),
  n: positive,
  update_id: text.min(1),
  change: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('pause'), now: z.literal(true).exactOptional() }),
    z.strictObject({ kind: z.literal('resume') }),
    z.strictObject({ kind: z.literal('stopAfter'), step: count }),
    z.strictObject({ kind: z.literal('checkpointNow'), step: count }),
    z.strictObject({ kind: z.literal('setHyperparameters'), ...hyperparameters }),
    z.strictObject({
      kind: z.literal('quarantine'),
      key: text.min(1),
      also: z.array(text.min(1)).exactOptional(),
    }),
  ]),
  observed: z.strictObject({ at: time }),
});

const name = z.strictObject({ schema: z.literal('longhaul.name/1'), n: positive, run: text });

const notice = z.strictObject({
  schema: z.literal('longhaul.notice/1'),
  n: positive,
  sink: text.min(1),
  trouble: z.strictObject({ what: text, reason: text, since: time }).nullable(),
  observed: z.strictObject({ at: time, by: text }),
});

const ref = z.strictObject({
  schema: z.literal('longhaul.ref/1'),
  run: text,
  user: text.min(1),
  kind: z.literal('fork'),
  step: count,
  observed: z.strictObject({ at: time }),
});

const gc = z.strictObject({
  schema: z.enum(['longhaul.gc/1', 'longhaul.gc/2']),
  n: positive,
  run: text,
  checkpoints: z.array(count),
  episodes: z.array(positive),
  batches: z.array(positive).exactOptional(),
  evaluations: z.array(z.strictObject({ state: digest, suite: digest })).exactOptional(),
  grace_s: z.number().nonnegative(),
  observed: z.strictObject({ at: time, by: text }),
});

const fileEntry = z.strictObject({ path: text.min(1), size: count, sha256: digest });

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

const weights = z.strictObject({
  schema: z.literal('longhaul.weights/1'),
  weights: digest,
  files: z.array(fileEntry).min(1),
});

const measured = {
  name: text,
  tasks: z
    .array(z.strictObject({ task_key: text, env_key: text, template: text, seed: z.number().int() }))
    .min(1),
  samples_per_task: positive,
  sampling,
  seed: z.number().int(),
  digests,
  numerics,
};
const suite = z.discriminatedUnion('schema', [
  z.strictObject({
    schema: z.literal('longhaul.suite/2'),
    ...measured,
    environments: z.record(text, digest),
    round: z.number().int().min(2).exactOptional(),
    again: text.exactOptional(),
  }),
  z.strictObject({ schema: z.literal('longhaul.suite/1'), ...measured }),
]);

const evaluated = z.strictObject({
  schema: z.literal('longhaul.evaluated/1'),
  run: text,
  step: count,
  suite_name: text,
  state: digest,
  suite: digest,
  observed: z.strictObject({ at: time }),
});

const passRate = share.nullable();
const ungradedRate = 'pass_at_1 is null where graded is 0, and a share where it is not';
const environmentResult = {
  graded: count,
  unknown: count,
  mean_turns: z.number().nonnegative(),
  mean_tool_calls: z.number().nonnegative(),
  tool_errors: count,
};
const evaluationResult = {
  state: digest,
  suite: digest,
  suite_name: text,
  graded: count,
  unknown: count,
  templates: z.record(z.string(), z.strictObject({ passed: count, graded: count })),
  observed: z.strictObject({
    run: text,
    step: count,
    seconds: z.number().nonnegative(),
    committed_at: time,
    metrics: figures,
  }),
};

const evaluation = z
  .strictObject({
    schema: z.literal('longhaul.evaluation/2'),
    ...evaluationResult,
    pass_at_1: passRate,
    environments: z.record(
      z.string(),
      z.strictObject({ ...environmentResult, pass_at_1: passRate }).refine(hasRateIfGraded, ungradedRate),
    ),
  })
  .refine(hasRateIfGraded, ungradedRate);

/** Version 1 wrote 0 where no outcome was graded. */
const evaluation1 = z
  .strictObject({
    schema: z.literal('longhaul.evaluation/1'),
    ...evaluationResult,
    pass_at_1: share,
    environments: z.record(
      z.string(),
      z.strictObject({ ...environmentResult, pass_at_1: share }).transform(withoutUngradedRate),
    ),
  })
  .transform(withoutUngradedRate);

export const recordSchemas: { [Kind in RecordKind]: z.ZodType<RecordTypes[Kind]> } = {
  run,
  plan,
  episode,
  episodes,
  batch,
  update,
  base,
  attempt,
  owner,
  control,
  name,
  notice,
  ref,
  gc,
  dataset,
  checkpoint,
  weights,
  suite,
  evaluation: z.discriminatedUnion('schema', [evaluation, evaluation1]),
  evaluated,
  sweep: sweepSchema(suite),
  tally,
};

/** The newest version of each kind that this code knows, and writes. */
export const schemaVersions: Record<RecordKind, number> = {
  run: 2,
  plan: 3,
  episode: 2,
  episodes: 2,
  batch: 2,
  update: 2,
  base: 1,
  attempt: 2,
  owner: 2,
  control: 2,
  name: 1,
  notice: 1,
  ref: 1,
  gc: 2,
  dataset: 1,
  checkpoint: 1,
  weights: 1,
  suite: 2,
  evaluation: 2,
  evaluated: 1,
  sweep: 2,
  tally: 1,
};

/** The oldest version of a kind that this code reads, where that is not the newest one. */
export const oldestVersions: Partial<Record<RecordKind, number>> = {
  attempt: 1,
  gc: 1,
  episodes: 1,
  run: 1,
  plan: 2,
  update: 1,
  owner: 1,
  control: 1,
  episode: 1,
  evaluation: 1,
  suite: 1,
  sweep: 1,
};

/**
 * Kinds that carry the sha256 of themselves, and since which version: what a run is steered by, so that the first reader of a changed
 * bit refuses it, whatever has been made of the record before.
 */
export const summedSince: Partial<Record<RecordKind, number>> = { run: 2, owner: 2, control: 2, update: 2 };

function hasRateIfGraded({ pass_at_1, graded }: { pass_at_1: PassRate; graded: number }): boolean {
  return (pass_at_1 === null) === (graded === 0);
}

function withoutUngradedRate<Rate extends { pass_at_1: number; graded: number }>(
  figures: Rate,
): Omit<Rate, 'pass_at_1'> & { pass_at_1: PassRate } {
  const { pass_at_1, graded } = figures;
  return { ...figures, pass_at_1: graded === 0 && pass_at_1 === 0 ? null : pass_at_1 };
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
