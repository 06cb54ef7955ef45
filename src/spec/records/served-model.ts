// The records of a run that trains on a Tinker server: its models (R33) and its saved states (R36) there.
import { z } from 'zod';
import { amount, count, digest, positive, text, time } from './parts.js';

/** A model on a Tinker server that belongs to the run. Only the newest instance is trained. */
export type InstanceRecord = z.infer<typeof instance>;
export const instance = z.strictObject({
  schema: z.literal('longhaul.instance/2'),
  n: positive,
  run: text,
  model: text.min(1).describe('id of the model on the server'),
  step: count.describe('step whose state the model began with'),
  path: text
    .min(1)
    .nullable()
    .describe('saved state that was loaded; null: the model began with fresh adapters'),
  purpose: z
    .literal('evaluate')
    .exactOptional()
    .describe('the model is only sampled, and ends with the process that made it; absent: it is trained'),
  node: text.min(1).describe('the only node that uses the model'),
  given_up: z.literal(true).exactOptional().describe('the model is ended, and never trained further'),
  moments: z.literal('zero').exactOptional().describe('the saved state was loaded without its moments'),
  session: text
    .min(1)
    .exactOptional()
    .describe('id of the server session; heartbeats in it keep the model alive'),
  passed_over: z.array(text.min(1)).exactOptional().describe('newer saved states that did not load'),
  observed: z.strictObject({ at: time, by: text }),
});

/** A batch that was applied again, after its step was committed: this instance has taken it. */
export type AppliedRecord = z.infer<typeof applied>;
export const applied = z.strictObject({
  schema: z.literal('longhaul.applied/1'),
  run: text,
  instance: positive,
  step: positive,
  step_id: digest,
  requests: positive.describe('training requests that the instance has answered by then (R34)'),
  observed: z.strictObject({ at: time, by: text }),
});

/** What is known of the weights after a step: log-probs of a few of its sequences (R37). */
export type RecordedCheck = z.infer<typeof recordedCheck>;
export const recordedCheck = z.strictObject({
  logprobs: z.array(z.number()).min(1).describe('after the step, where its first sequences are trained'),
  moved: amount.describe('mean distance of these log-probs from those before the step'),
});

/** Who applied a step's batch on a Tinker server, and what came of it. */
export type ServedUpdate = z.infer<typeof servedUpdate>;
export const servedUpdate = z.strictObject({
  instance: positive.describe('number of the instance that took the batch'),
  requests: positive.describe('training requests that the instance has answered by then (R34)'),
  check: recordedCheck,
});

/** A saved state of a step. A step may have several saved states: each comes from the same batches and the same base. */
export type SavedStateRecord = z.infer<typeof saved>;
export const saved = z.strictObject({
  schema: z.literal('longhaul.saved/1'),
  n: positive,
  run: text,
  step: positive,
  state: digest,
  path: text.min(1).describe('path of the saved state on the server'),
  instance: positive.describe('number of the instance that saved it'),
  removed: z
    .literal(true)
    .exactOptional()
    .describe('the saved state with this path is removed: a checkpoint’s or a newer one serves in its place'),
  number: positive.describe('number of the save among the training requests of that instance (R34)'),
  observed: z.strictObject({ at: time, by: text }),
});
