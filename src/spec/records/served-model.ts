// The records of a run that trains on a Tinker server: its models (R33) and its saved states (R36) there.
import { z } from 'zod';
import { count, digest, positive, text, time } from './parts.js';

/** A model on a Tinker server that belongs to the run. Only the newest instance is trained. */
export type InstanceRecord = z.infer<typeof instance>;
export const instance = z.strictObject({
  schema: z.literal('longhaul.instance/1'),
  n: positive,
  run: text,
  model: text.min(1).describe('id of the model on the server'),
  step: count.describe('step whose state the model began with'),
  path: text
    .min(1)
    .nullable()
    .describe('saved state that was loaded; null: the model began with fresh adapters'),
  given_up: z.literal(true).exactOptional().describe('the model is ended, and never trained further'),
  moments: z.literal('zero').exactOptional().describe('the saved state was loaded without its moments'),
  session: text
    .min(1)
    .exactOptional()
    .describe('id of the server session; heartbeats in it keep the model alive'),
  passed_over: z.array(text.min(1)).exactOptional().describe('newer saved states that did not load'),
  observed: z.strictObject({ at: time, by: text }),
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
