// The records of a whole run: its start, its owners, its names, and what other runs need of it.
import { z } from 'zod';
import type { RunSpec } from '../run-spec.js';
import { amount, count, digest, numerics, positive, text, time, tokenIds } from './parts.js';

export type DatasetReference = RunRecord['dataset'];
export type RunRecord = z.infer<typeof run>;
export const run = z.strictObject({
  schema: z.literal('longhaul.run/3'),
  run: text,
  name: text,
  // A run's start checks the spec in full, by its own schema.
  spec: z
    .custom<RunSpec>(isRunSpec, 'is not a run spec with name, project, seed, model, generator and trainer')
    .describe('[the spec](run-spec.md) with all defaults, without `fork`'),
  seed: z.number().int(),
  base_model: digest,
  tokenizer: digest,
  chat_template: digest,
  tool_parser: text.describe('tool format, and its version'),
  eos_tokens: tokenIds
    .exactOptional()
    .describe('further tokens that end a turn, from `generation_config.json`'),
  dataset: z.strictObject({ name: text, version: text, digest }),
  lineage: z
    .strictObject({
      run: text,
      step: count,
      state: digest,
      rebase: z.strictObject({ to: count, numerics }).exactOptional(),
    })
    .nullable()
    .describe('the parent, and the step after which the run continues ([fork](#forks-and-rewinds))'),
  observed: z.strictObject({ started_at: time }),
});

export type OwnerRecord = z.infer<typeof owner>;
export const owner = z.strictObject({
  schema: z.literal('longhaul.owner/3'),
  n: positive,
  address: text.describe('Temporal server; a loopback address with its host, `127.0.0.1:7233@host`'),
  clusterId: text,
  namespace: text,
  workflowId: text,
  firstExecutionRunId: text,
  observed: z.strictObject({
    at: time,
    by: text,
    environment_urls: z
      .record(text, text.nullable())
      .exactOptional()
      .describe('by `env_key`; null: the node’s own server. The newest record counts'),
    budget: z
      .strictObject({
        max_tokens: z.number().exactOptional(),
        max_wall_s: z.number().exactOptional(),
        max_gpu_hours: z.number().exactOptional(),
        max_usd: z.number().exactOptional(),
        usd_per_gpu_hour: z.number().exactOptional(),
        usd_per_million: z
          .strictObject({ train: z.number(), prefill: z.number(), sample: z.number() })
          .exactOptional(),
      })
      .exactOptional()
      .describe('that of the spec at this start'),
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
      .exactOptional()
      .describe('likewise'),
    slack: z
      .strictObject({
        channel: text,
        events: z.array(z.enum(['checkpoints', 'evaluations', 'alerts', 'pauses', 'end'])).exactOptional(),
      })
      .exactOptional()
      .describe('likewise'),
  }),
});

/** Names the run that is the n-th timeline of a name. */
export const name = z.strictObject({
  schema: z.literal('longhaul.name/1'),
  n: positive,
  run: text.describe('the name’s n-th timeline'),
});

/** Data of a run that a tracker or channel has not received. No step depends on it. */
export type NoticeRecord = z.infer<typeof notice>;
export const notice = z.strictObject({
  schema: z.literal('longhaul.notice/1'),
  n: positive,
  sink: text.min(1).describe('`wandb`, `slack`, …'),
  trouble: z
    .strictObject({
      what: text.describe('what was not delivered, such as `points behind step 12`'),
      reason: text,
      since: time,
    })
    .nullable()
    .describe('null: everything was delivered since'),
  observed: z.strictObject({ at: time, by: text }),
});

/** `refs/{user}.json`: a reference by another run that needs a state of this run; no collection deletes that state (R22, R23). */
export type RefRecord = z.infer<typeof ref>;
export const ref = z.strictObject({
  schema: z.literal('longhaul.ref/1'),
  run: text.describe('run whose timeline has `step`'),
  user: text.min(1).describe('run id of the fork'),
  kind: z.literal('fork'),
  step: count.describe('the newest checkpoint up to this step is kept'),
  observed: z.strictObject({ at: time }),
});

/**
 * `gc/{n}.json`: what a collection is about to delete (R23). The record stays unchanged even if a later reference protects some of these
 * objects.
 */
export type CollectionRecord = z.infer<typeof gc>;
export const gc = z.strictObject({
  schema: z.literal('longhaul.gc/2'),
  n: positive,
  run: text,
  checkpoints: z.array(count).describe('steps whose checkpoints are deleted'),
  episodes: z.array(positive).describe('steps whose episodes are folded'),
  batches: z.array(positive).exactOptional().describe('steps whose batches are compressed'),
  evaluations: z
    .array(z.strictObject({ state: digest, suite: digest }))
    .exactOptional()
    .describe('evaluations that are folded'),
  grace_s: amount.describe('seconds until the first deletion'),
  observed: z.strictObject({ at: time, by: text }),
});

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
