// How long an activity may take, when it is tried again, and which failures no retry can fix.
import type { ActivityOptions } from '@temporalio/workflow';
import type { FatalFailure, NoSignal } from '../activities/contracts.js';

/** Failures that end the workflow: a person has to start another one, so waiting for `resume` makes no sense. */
export const endingFailures: readonly string[] = [
  'InvalidSpec',
  'RunOwned',
  'OwnerChanged',
] satisfies FatalFailure[];

/** What a person does about each failure before the run can go on; the command to go on with is added to it. */
export const remedies: Record<FatalFailure, string> = {
  InvalidSpec: 'Correct the spec and start the run again',
  RunOwned: 'Stop the workflow that owns the run, or start this one with --take-over',
  OwnerChanged: 'Another workflow drives this run now; look at that one',
  Diverged:
    'Two computations of one step disagree; compare them with `longhaul audit`, and keep both results',
  NoProgress: 'Look at the failure and at the node’s log, and fix the cause',
  EnvironmentsUnavailable:
    'Start the environment servers (`longhaul doctor` shows which one does not answer)',
  NothingGraded: 'Fix the environment as the reason says: outcomes that are unknown are then played again',
  UnreadableRecord: 'Put the bytes of the named record back from a copy',
  OlderSchema:
    'Start workers of the version that wrote the record, or start the run again under another name',
  NewerSchema: 'Start workers of the version that wrote the record',
  StoreUnfit: 'Use a store with create-only puts (`longhaul doctor` probes it)',
  EngineUnfit:
    'Give the node worker the engine that is asked for, and start it again (or, where there is none any more, leave its ' +
    'numerics: longhaul rebase NAME --numerics …)',
  BadModelFolder: 'Put the model folder of the spec’s `model.path` in order on the run’s node',
};

/** Activities look at the records before they act, so trying again is always safe and soon is best (R28). */
const recordGuardedRetry = {
  initialInterval: 200,
  backoffCoefficient: 1.5,
  maximumInterval: '10 seconds',
  nonRetryableErrorTypes: Object.keys(remedies),
} as const;

/**
 * Workers send a heartbeat every two seconds by a timer of their own. An activity that was handed to a worker in the moment of its death is
 * known only to the server, and waits this long. Too short for a machine that stalls costs no more than another try.
 */
const heartbeatTimeout = '10 seconds';

/** Planning and control records: seconds at most. */
export const orchestratorPolicy = {
  startToCloseTimeout: '2 minutes',
  heartbeatTimeout,
  retry: recordGuardedRetry,
} satisfies ActivityOptions;

/** Asked again within a minute in any case. */
export const closedRunsPolicy = {
  ...orchestratorPolicy,
  scheduleToCloseTimeout: '30 seconds',
} satisfies ActivityOptions;

/** A first opening may generate the built-in tasks. */
export const openRunPolicy = {
  startToCloseTimeout: '15 minutes',
  heartbeatTimeout,
  retry: recordGuardedRetry,
} satisfies ActivityOptions;

export const reportPolicy = {
  startToCloseTimeout: '10 minutes',
  heartbeatTimeout,
  retry: recordGuardedRetry,
} satisfies ActivityOptions;

/** A report at a cancelled run's end must not hold the cancellation for ever. */
export const farewellReportPolicy = {
  ...reportPolicy,
  scheduleToCloseTimeout: '10 minutes',
} satisfies ActivityOptions;

/** A node's queues are its own: a node that takes no task in this time is gone, and the run looks for another. */
const nodeIsGoneAfter = '2 minutes';

/**
 * A pause or a cancelled run waits until its node has let go: the activity's name is taken until then. The workflow does not wait for a
 * lost node (`NodePlacement`).
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

/** A save or an upload that keeps failing is given up: the next checkpoint is taken from the state that is held (R17). */
export const checkpointPolicy = {
  cancellationType,
  startToCloseTimeout: '6 hours',
  scheduleToStartTimeout: nodeIsGoneAfter,
  heartbeatTimeout,
  retry: { ...recordGuardedRetry, maximumAttempts: 12 },
} satisfies ActivityOptions;

/** After the last step there is no next checkpoint: a full store is waited for, and other failures end as in any activity (R27). */
export const lastCheckpointPolicy = {
  ...checkpointPolicy,
  retry: recordGuardedRetry,
} satisfies ActivityOptions;

/** While a run waits for a node. The pool sends its answer unasked; asking again is for the case that the pool was lost. */
export const placing = {
  firstAskAgainMs: 60_000,
  backoff: 2,
  longestAskAgainMs: 3_600_000,
  /** How long no node may be alive before a person is asked. */
  deadlineMs: 3_600_000,
  /** How long a paused or blocked run keeps its nodes. */
  idleRunHoldsMs: 60_000,
} as const;

/** A step that had nothing to learn from is no failure. */
export const noSignal: NoSignal = 'no_signal';

/** Steps in a row that applied nothing before a person is asked (R27). */
export const maxUnappliedSteps = 3;

/** Pauses between rounds of tries of what keeps failing: doubled each time (R27). */
export const standstillPause = { firstMs: 2_000, longestMs: 120_000 };

/** GRPO steps in a row with too few grades before a person is asked. */
export const maxUngradedSteps = 2;

/** Upload intervals that may pass while one is in flight before a step waits for it (R17). */
export const maxUploadLag = 3;

/**
 * Work worth saving to the node's disk: at least so many seconds of steps, and so many times the part of a save that the next rollouts do
 * not hide.
 */
export const localSave = { afterSeconds: 10, timesItsCost: 20 } as const;

/**
 * A collection that keeps failing is given up: the next one looks at what there is. Cancelled, it is not waited for, since it may end
 * at any moment.
 */
export const collectionPolicy = {
  cancellationType: 'TRY_CANCEL',
  startToCloseTimeout: '1 hour',
  heartbeatTimeout,
  retry: { ...recordGuardedRetry, maximumAttempts: 5 },
} satisfies ActivityOptions;

/** A last collection must not hold up a run's end: `longhaul gc` does the rest. */
export const lastCollectionPolicy = {
  ...collectionPolicy,
  scheduleToCloseTimeout: '5 minutes',
} satisfies ActivityOptions;

/**
 * Limits of a sweep. Between two evaluations, once a lease is older than `turnMs`, it is released and requested again behind all that wait.
 * What keeps failing in the same way is tried again until nothing has succeeded for `patienceMs` (R27).
 */
export const sweeping = { windowPairs: 40, turnMs: 10 * 60_000, patienceMs: 10 * 60_000 };
