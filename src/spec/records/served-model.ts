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
  step: count.describe('step whose state it began with'),
  path: text.min(1).nullable().describe('the state that was loaded; null: it began with fresh adapters'),
  purpose: z
    .literal('evaluate')
    .exactOptional()
    .describe('it is only sampled, and ends with the process that made it; absent: it is trained'),
  node: text.min(1).describe('the only one that uses the model'),
  given_up: z.literal(true).exactOptional().describe('it is ended, and never trained further'),
  moments: z.literal('zero').exactOptional().describe('loaded without its moments'),
  session: text.min(1).exactOptional().describe('server session; heartbeats in it keep the model alive'),
  passed_over: z.array(text.min(1)).exactOptional().describe('newer states that did not load'),
  observed: z.strictObject({ at: time, by: text }),
});

/** Says that an instance has taken a batch again, after the batch's step was committed. */
export type AppliedRecord = z.infer<typeof applied>;
export const applied = z.strictObject({
  schema: z.literal('longhaul.applied/1'),
  run: text,
  instance: positive,
  step: positive,
  step_id: digest,
  requests: positive.describe('training requests answered by then (R34)'),
  observed: z.strictObject({ at: time, by: text }),
});

/** What is known of the weights after a step: log-probs of a few of its sequences (R37). */
export type RecordedCheck = z.infer<typeof recordedCheck>;
export const recordedCheck = z.strictObject({
  logprobs: z.array(z.number()).min(1).describe('after the step, of its first trained sequences'),
  moved: amount.describe('their mean distance from those before the step'),
});

/** The instance that applied a step's batch on a Tinker server, and the check of its weights. */
export type ServedUpdate = z.infer<typeof servedUpdate>;
export const servedUpdate = z.strictObject({
  instance: positive.describe('the instance that took the batch'),
  requests: positive.describe('training requests answered by then (R34)'),
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
  path: text.min(1).describe('path of the state on the server'),
  instance: positive.describe('the instance that saved it'),
  removed: z
    .literal(true)
    .exactOptional()
    .describe('this path is removed: a checkpoint’s or a newer one serves in its place'),
  number: positive.describe('its number among that instance’s training requests (R34)'),
  observed: z.strictObject({ at: time, by: text }),
});
