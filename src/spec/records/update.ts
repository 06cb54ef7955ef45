// What a step's update saw and did (R10–R12): the identity of a batch file, and the records `update.json`.
import { z } from 'zod';
import { count, digest, engine, figures, numerics, outcomes, positive, text, time } from './parts.js';

/** Stored in the batch file's `__metadata__.longhaul` (canonical JSON). */
export type BatchIdentity = z.infer<typeof batch>;
export const batch = z.strictObject({
  schema: z.literal('longhaul.batch/2'),
  run: text,
  step: positive,
  plan: digest,
  previous_state: digest,
  inputs: digest.describe(
    'sha256 of a list of hex digests, each followed by a line feed; grpo: the episodes’ digests in (slot, sample) order; sft: sha256 of the canonical JSON of each demonstration, in the order of `mini_batches`',
  ),
  mini_batches: positive.describe('number of sub-updates'),
  loss_tokens: z.array(count).describe('targets of each mini-batch: the token mean’s denominators'),
  outcomes,
  metrics: figures.describe(
    'of the episodes, functions of the inputs; 0 where nothing was graded, and no `pass_at_1`',
  ),
});

export type UpdateIdentity = UpdateRecord['identity'];
export type UpdateObserved = UpdateRecord['observed'];
/** `steps/{n}/update.json`, n ≥ 1 (R11). */
export type UpdateRecord = z.infer<typeof update>;
export const update = z.strictObject({
  schema: z.enum(['longhaul.update/1', 'longhaul.update/2']),
  identity: z.strictObject({
    run: text,
    step: positive,
    kind: z.enum(['grpo', 'sft']),
    plan: digest,
    batch: digest,
    previous_state: digest,
    state: digest.describe('after it'),
    step_id: digest,
    numerics,
    applied: z
      .union([z.literal(true), z.strictObject({ reason: text })])
      .describe('with a reason, the state stayed as it was'),
    outcomes,
    weights: digest
      .exactOptional()
      .describe(
        'of the last step of a warm start that trains all weights: the model’s weights, what KL terms are taken against; absent in earlier versions',
      ),
  }),
  observed: z.strictObject({
    metrics: figures.describe(
      'SkyRL’s names (`reward/…` below), and what faults have cost the run so far (`ft/…`, [operations.md](operations.md#what-faults-cost))',
    ),
    timings_ms: figures.describe('below'),
    engine,
    committed_at: time,
    worker: text.exactOptional().describe('`{node}@{host} pid {pid}` that committed it'),
  }),
});

/** `steps/000000/update.json`: the base model (R5). */
export type BaseRecord = z.infer<typeof base>;
export const base = z.strictObject({
  schema: z.literal('longhaul.base/1'),
  identity: z.strictObject({
    run: text,
    step: z.literal(0),
    base_model: digest.describe('as in the run'),
    state: digest,
    weights: digest
      .exactOptional()
      .describe('the model’s weights without adapters; absent in earlier versions'),
    numerics,
  }),
  observed: z.strictObject({
    engine,
    committed_at: time,
    parameters: z
      .strictObject({ model: positive.describe('without adapters'), trained: positive })
      .exactOptional()
      .describe('numbers; absent in earlier versions'),
  }),
});
