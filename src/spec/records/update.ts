// Input and result of a step's update (R10–R12): the identity of the batch file, and the record `update.json`.
import { z } from 'zod';
import { count, digest, engine, figures, numerics, outcomes, positive, text, time } from './parts.js';
import { servedUpdate } from './served-model.js';

/** Identity of a batch, in its file's `__metadata__.longhaul` (canonical JSON). */
export type BatchIdentity = z.infer<typeof batch>;
export const batch = z.strictObject({
  schema: z.literal('longhaul.batch/2'),
  run: text,
  step: positive,
  plan: digest,
  previous_state: digest,
  inputs: digest.describe(
    'list digest; grpo: of the episodes’ digests in (slot, sample) order; sft: of the sha256 of each demonstration’s canonical JSON, in `mini_batches` order',
  ),
  mini_batches: positive,
  loss_tokens: z.array(count).describe('number of targets in each mini-batch'),
  outcomes,
  metrics: figures.describe('those that follow from the inputs'),
});

/** What is known of an environment's server; a fact that it did not tell is absent. */
export type ServerIdentity = z.infer<typeof serverIdentity>;
const serverIdentity = z.strictObject({
  name: text.exactOptional(),
  version: text.exactOptional(),
  tools: digest.exactOptional(),
  reward_rule: text.exactOptional(),
});

/** `steps/{n}/update.json`, n ≥ 1: the update of a step (R11). */
export type UpdateRecord = z.infer<typeof update>;
export const update = z.strictObject({
  schema: z.literal('longhaul.update/4'),
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
    applied: z
      .union([z.literal(true), z.strictObject({ reason: text })])
      .describe(
        '`reason`: `no_signal`, `all_filtered` (overlong filtering left no target) or `non_finite`; the state then stays',
      ),
    outcomes,
    weights: digest
      .exactOptional()
      .describe('weights for the KL term; only in the last step of a warm start that trains all weights'),
    rescored: digest.exactOptional().describe('sha256 of the `rescored` file'),
  }),
  observed: z.strictObject({
    metrics: figures.describe('SkyRL’s names'),
    timings_ms: figures,
    engine,
    committed_at: time,
    worker: text.exactOptional().describe('`{node}@{host} pid {pid}`'),
    device: text.exactOptional().describe('its GPU’s name, if any'),
    environments: z
      .record(text, serverIdentity)
      .exactOptional()
      .describe('by `env_key`: servers with a `url`, asked after the rollouts; `tools`: sha256 of the list'),
    served: servedUpdate.exactOptional().describe('on a Tinker server, unless nothing was applied'),
  }),
});

/** `steps/000000/update.json`: the base model (R5). */
export type BaseRecord = z.infer<typeof base>;
export const base = z.strictObject({
  schema: z.literal('longhaul.base/1'),
  identity: z.strictObject({
    run: text,
    step: z.literal(0),
    base_model: digest,
    state: digest,
    weights: digest.exactOptional().describe('digest of the weights; absent with adapters'),
    numerics,
  }),
  observed: z.strictObject({
    engine,
    committed_at: time,
    parameters: z.strictObject({ model: positive, trained: positive }).exactOptional(),
  }),
});
