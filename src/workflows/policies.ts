// Time-outs and retry policies of activities, intervals of waiting workflows, and the failures that no retry can fix.
import type { ActivityOptions } from '@temporalio/workflow';
import type { FatalFailure, NoSignal } from '../activities/contracts.js';
import { nodeLostAfterMs, nodeReportIntervalMs } from './messages.js';

/** Failures that end the workflow: waiting for `resume` makes no sense, because a person has to start another workflow. */
export const endingFailures: readonly string[] = [
  'InvalidSpec',
  'RunOwned',
  'OwnerChanged',
] satisfies FatalFailure[];

/** What a person has to do about each failure before the run can go on; the command that resumes the run is appended. */
export const remedies: Record<FatalFailure, string> = {
  InvalidSpec: 'Correct the spec and start the run again',
  RunOwned: 'Stop the workflow that owns the run, or start this run with --take-over',
  OwnerChanged: 'Another workflow drives this run now: follow that workflow',
  Diverged:
    'Two computations of one step disagree; compare them with `longhaul audit`, and keep both results',
  NoProgress: 'Look at the failure and at the node’s log, and fix the cause',
  EnvironmentsUnavailable:
    'Start the environment servers (`longhaul doctor` shows which one does not answer)',
  NothingGraded:
    'Fix the environment as the reason says; the episodes with unknown outcomes are then played again',
  UnreadableRecord: 'Restore the named record from a copy',
  OlderSchema: 'Start workers of the version that wrote the record, or start the run again with a new name',
  NewerSchema: 'Start workers of the version that wrote the record',
  StoreUnfit: 'Use a store with create-only puts (`longhaul doctor` probes it)',
  EngineUnfit:
    'Start the node worker again with the engine that the reason asks for. If no such engine exists any more, switch the run ' +
    'to other numerics: longhaul rebase NAME --numerics …. A run on a Tinker server needs a node with LONGHAUL_TINKER, and with the ' +
    'LONGHAUL_TINKER_SERVICE and LONGHAUL_SERVED_MODEL under which it began',
  BadModelFolder: 'Repair the model folder of the spec’s `model.path` on the run’s node',
  PolicyServerUnavailable:
    'Start the Tinker server, or start the node worker with the server’s new address (LONGHAUL_TINKER)',
  PolicyServerDenied:
    'Check the account on the Tinker server, or start the node worker with a valid TINKER_API_KEY',
};

/** Activities look for their records first, so a retry is always safe, and an early retry is best (R28). */
const recordGuardedRetry = {
  initialInterval: 200,
  backoffCoefficient: 1.5,
  maximumInterval: '10 seconds',
  nonRetryableErrorTypes: Object.keys(remedies),
} as const;

/**
 * Workers send a heartbeat every two seconds, by their own timer. If a worker dies just as it receives an activity, only the server knows
 * of that activity, and its retry waits this long. If the time-out is too short for a machine that stalls, that costs one more attempt.
 */
const heartbeatTimeout = '10 seconds';

/** Planning and control records: seconds at most. */
export const orchestratorPolicy = {
  startToCloseTimeout: '2 minutes',
  heartbeatTimeout,
  retry: recordGuardedRetry,
} satisfies ActivityOptions;

/** Limited, because the workflow asks again within a minute anyway. */
export const closedRunsPolicy = {
  ...orchestratorPolicy,
  scheduleToCloseTimeout: '30 seconds',
} satisfies ActivityOptions;

/** Longer, because a run's first opening may generate a data set. */
export const openRunPolicy = {
  startToCloseTimeout: '15 minutes',
  heartbeatTimeout,
  retry: recordGuardedRetry,
} satisfies ActivityOptions;

/** Reads hundreds of megabytes, or plays hundreds of solutions. */
export const dataPolicy = {
  startToCloseTimeout: '6 hours',
  heartbeatTimeout,
  retry: recordGuardedRetry,
} satisfies ActivityOptions;

export const reportPolicy = {
  startToCloseTimeout: '10 minutes',
  heartbeatTimeout,
  retry: recordGuardedRetry,
} satisfies ActivityOptions;

/** Limited, because a report at the end of a cancelled run must not delay the cancellation for ever. */
export const farewellReportPolicy = {
  ...reportPolicy,
  scheduleToCloseTimeout: '10 minutes',
} satisfies ActivityOptions;

/** Each node has its own task queues: if no worker takes a task for this long, the node is gone, and the run looks for another one. */
const nodeIsGoneAfter = '2 minutes';

/**
 * A pause or a cancelled run waits until the activity on its node has ended, because the activity's id is in use until then. For a lost
 * node the workflow does not wait (`NodePlacement`).
 */
const cancellationType = 'WAIT_CANCELLATION_COMPLETED';

/** Work on a node's engine. */
export const enginePolicy = {
  cancellationType,
  startToCloseTimeout: '24 hours',
  scheduleToStartTimeout: nodeIsGoneAfter,
  heartbeatTimeout,
  retry: recordGuardedRetry,
} satisfies ActivityOptions;

/** A save or an upload that keeps failing is given up: the next checkpoint saves the state held then (R17). */
export const checkpointPolicy = {
  cancellationType,
  startToCloseTimeout: '6 hours',
  scheduleToStartTimeout: nodeIsGoneAfter,
  heartbeatTimeout,
  retry: { ...recordGuardedRetry, maximumAttempts: 12 },
} satisfies ActivityOptions;

/** No checkpoint follows the last one: its upload waits while the store is full; other failures end it as in any activity (R27). */
export const lastCheckpointPolicy = {
  ...checkpointPolicy,
  retry: recordGuardedRetry,
} satisfies ActivityOptions;

/** Times after which the pool of nodes acts by itself. */
export const poolTimes = {
  nodeLostAfterMs,
  /** If a timer fires this late, the workflow was not served in the meantime, so the nodes' reports did not arrive either. */
  awayAfterMs: nodeReportIntervalMs / 2,
  /** While a request waits, the pool checks at this interval whether the runs that hold nodes are open (R30). */
  askEveryMs: 60_000,
};

/** Intervals while a run waits for a node. The pool answers by itself; the run asks again only in case the pool was lost. */
export const placing = {
  firstAskAgainMs: 60_000,
  backoff: 2,
  longestAskAgainMs: 3_600_000,
  /** If no node is alive for this long, the run asks a person. */
  deadlineMs: 3_600_000,
  /** How long a paused or blocked run keeps its nodes. */
  idleRunHoldsMs: 60_000,
} as const;

/** The reason of a step that had nothing to learn from; such a step did not fail. */
export const noSignal: NoSignal = 'no_signal';

/** After this many steps in a row that applied nothing, the run asks a person (R27). */
export const maxUnappliedSteps = 3;

/** Pauses between attempts at work that keeps failing: each pause is twice as long as the pause before it (R27). */
export const standstillPause = { firstMs: 2_000, longestMs: 120_000 };

/** After this many GRPO steps in a row with too few grades, the run asks a person. */
export const maxUngradedSteps = 2;

/** A step waits for an upload that is still in flight after this many checkpoint intervals (R17). */
export const maxUploadLag = 3;

/**
 * When a state is worth saving on the node's disk: the steps since the last save took at least `afterSeconds`, and at least `timesItsCost`
 * times the part of the save that the next rollouts do not hide.
 */
export const localSave = { afterSeconds: 10, timesItsCost: 20 } as const;

/**
 * A collection that keeps failing is given up: the next one starts from what it finds. Nothing waits for a cancelled collection, because a
 * collection may end at any moment.
 */
export const collectionPolicy = {
  cancellationType: 'TRY_CANCEL',
  startToCloseTimeout: '1 hour',
  heartbeatTimeout,
  retry: { ...recordGuardedRetry, maximumAttempts: 5 },
} satisfies ActivityOptions;

/** Limited, because the last collection must not delay the end of a run: `longhaul gc` can do the rest. */
export const lastCollectionPolicy = {
  ...collectionPolicy,
  scheduleToCloseTimeout: '5 minutes',
} satisfies ActivityOptions;

/**
 * Limits of a sweep. When a lease is older than `turnMs`, the sweep releases it between two evaluations and requests another one, behind
 * all waiting requests. Work that keeps failing in the same way is tried again until no pair has succeeded for `patienceMs` (R27).
 */
export const sweeping = { windowPairs: 40, turnMs: 10 * 60_000, patienceMs: 10 * 60_000 };
