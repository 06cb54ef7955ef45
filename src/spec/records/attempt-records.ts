// Records of attempts, as evidence (R9): the episodes an attempt starts, the failure before it, and the cost of that failure.
import { z } from 'zod';
import { amount, count, digest, positive, text, time } from './parts.js';

const seconds = amount;

/** Where a restored state came from. `base`: made from the seed; `held`: computed from an older state that the engine held. */
const restoreSource = z.enum(['disk', 'store', 'base', 'held']);

export type RecoveryCause = Recovery['cause'];
/** Work of a failed attempt that cannot be reused. */
export type LostWork = Recovery['lost'];
/** One failure and the recovery from it. All its durations are measured by one machine's clock. */
export type Recovery = z.infer<typeof recovery>;
const recovery = z.strictObject({
  cause: z.enum([
    'engine_exit',
    'worker_restart',
    'orchestrator_restart',
    'node_lost',
    'node_drained',
    'timeout',
    'store',
    'environment',
    'temporal',
    'diverged',
    'error',
    'placed',
    'engine_shared',
  ]),
  event: text.describe('the process that died, or the attempt that failed'),
  lost: z.strictObject({
    seconds: seconds.describe('mean age of the interrupted work since its start or last saved point'),
    tokens: count,
    episodes: count,
  }),
  detection_seconds: seconds.describe('until the failure was noticed'),
  down_seconds: seconds.describe('until work continued'),
  restore: z
    .strictObject({
      from: restoreSource.describe('`base`: made from the seed; `held`: the engine had an older state'),
      step: count,
      bytes: count,
      seconds,
    })
    .exactOptional(),
  replay: z
    .strictObject({ steps: count, seconds })
    .exactOptional()
    .describe('updates applied again after the restore'),
});

/** Episodes that an attempt is about to start (R9), and failures before it. It is evidence for audits; no step depends on it. */
export type AttemptRecord = z.infer<typeof attempt>;
export const attempt = z.strictObject({
  schema: z.literal('longhaul.attempt/2'),
  activity: text,
  attempt: text,
  n: positive,
  starts: z.array(text).describe('keys of episodes, written before their first token'),
  discarded: z.array(text).exactOptional().describe('episodes that another attempt recorded first'),
  failures: z
    .array(
      z.strictObject({
        verb: text,
        input: digest.describe('for an update, its step id; else sha256 of the activity’s input'),
        message: text.describe('canonical JSON of both results'),
      }),
    )
    .exactOptional()
    .describe('engine results that contradict a record (R19)'),
  observed: z.strictObject({
    node: text,
    pid: count,
    at: time,
    recoveries: z.array(recovery).exactOptional().describe('failures before this attempt'),
    waited_seconds: seconds
      .exactOptional()
      .describe(
        'time that all work waited for an environment or the store, or the run for a node, the orchestrator or Temporal',
      ),
  }),
});
