// Control records: changes that people request for a running run, and the state that results when these records are folded (R21).
import { z } from 'zod';
import { amount, count, positive, text, time } from './parts.js';

/** Settings that may change during a run, named as in the spec. An absent setting does not change. */
export type Hyperparameters = Omit<z.infer<typeof hyperparameters>, 'kind'>;
const hyperparameters = z.strictObject({
  kind: z.literal('setHyperparameters'),
  lr: amount.exactOptional(),
  eps_clip_low: amount.exactOptional(),
  eps_clip_high: amount.exactOptional(),
  kl_loss_coef: amount.exactOptional(),
  entropy_loss_coef: amount.exactOptional(),
  train_batch_size: positive.exactOptional(),
  ckpt_interval: positive.exactOptional(),
  eval_interval: positive.exactOptional(),
  temperature: amount.exactOptional(),
  n_samples_per_prompt: positive.exactOptional(),
  max_turns: positive.exactOptional(),
  max_input_length: positive.exactOptional(),
  max_generate_length: positive.exactOptional(),
  max_sequence_length: positive.exactOptional(),
});

export type ControlChange = z.infer<typeof change>;
const change = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('pause'), now: z.literal(true).exactOptional() }),
  z.strictObject({ kind: z.literal('resume') }),
  z.strictObject({ kind: z.literal('stopAfter'), step: count }),
  z.strictObject({ kind: z.literal('checkpointNow'), step: count }),
  hyperparameters,
  z.strictObject({
    kind: z.literal('quarantine'),
    key: text.min(1),
    also: z.array(text.min(1)).exactOptional(),
  }),
  z.strictObject({ kind: z.literal('resample'), step: positive, keys: z.array(text.min(1)).min(1) }),
]);

export type ControlRecord = z.infer<typeof control>;
export const control = z.strictObject({
  schema: z.literal('longhaul.control/3'),
  n: positive,
  update_id: text
    .min(1)
    .describe(
      '`firstExecutionRunId/ID` of the Update, or `originalExecutionRunId/signal-K-NAME` of the K-th signal of an execution; unique',
    ),
  change: change.describe(
    '`now`: cuts off episodes in flight; `checkpointNow`: at this step or a later one; an absent hyperparameter keeps its value; `also`: keys made from `key`, including a step’s batch even if it does not exist',
  ),
  observed: z.strictObject({ at: time }),
});

/** The result of folding all control records in order (R21), with the hyperparameters that were set. */
export interface ControlState extends Omit<Hyperparameters, 'lr' | 'temperature'> {
  /** Number of the newest folded record; 0 if there is none. */
  n: number;
  paused: boolean;
  /** Present while the run is paused by a pause with `now`. */
  pausedNow?: true;
  stopAfter: number | null;
  /** Step of the last `checkpointNow`. */
  checkpoint?: number;
  /** Number of the newest resample: what was collected before it is set aside. */
  resampled?: number;
  lr: number | null;
  temperature: number | null;
}
