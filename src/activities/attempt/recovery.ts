// Finds out why a new attempt was needed. Sources: this process's memory of the previous attempt, that attempt's heartbeat, and the worker
// that committed the step before. The result is evidence for the figures ft/*; the work does not depend on it.
import { Context } from '@temporalio/activity';
import { isGrpcServiceError, ServiceError } from '@temporalio/client';
import { ApplicationFailure, CancelledFailure } from '@temporalio/common';
import {
  type AttemptAccount,
  type AttemptSnapshot,
  currentAccount,
  type EndedAttempt,
  type Failure,
  nothingLost,
} from './attempt-account.js';
import { type Restored, rounded, type AttemptScope } from '../../policy/attempt-scope.js';
import { attemptEvidence } from './attempt-evidence.js';
import type { Observation, OnNode } from '../contracts.js';
import { nodeOf, type Predecessor, type ProcessLife } from './process-life.js';
import { currentScope } from './scope.js';
import { EngineExited } from '../../engine/policy-engine.js';
import { EnvironmentError } from '../../environments/environment.js';
import type { Recovery, RecoveryCause } from '../../spec/records/attempt-records.js';
import { isAtState, isOfSweep } from '../../store/runs/step-attempts.js';
import { ownersFolder } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { mendsItself } from './repeated-failures.js';
import { readSequence } from '../../store/records/records.js';
import { readPlan, readUpdateIfAny } from '../../store/runs/run-records.js';

/** Milliseconds by which this machine's clock and the server's may differ. */
const clockTolerance = 2_000;

interface RecoveryDeps {
  store: ObjectStore;
  life: ProcessLife;
  log(message: string): void;
}

/** The end of the attempt in server time: the time it was scheduled, plus its duration by this process's clock. */
function observation(begunAt: number): Observation {
  const { currentAttemptScheduledTimestampMs } = Context.current().info;
  return { ended_at: Math.round(currentAttemptScheduledTimestampMs + performance.now() - begunAt) };
}

/**
 * Keeps account of an activity's failures. The next attempt, in this process or another, records the failure, the lost work, and the time
 * and restore needed to work again.
 */
export function recovering<
  D extends RecoveryDeps,
  I extends { run: string; step?: number } & OnNode,
  O extends object,
>(activity: (deps: D, input: I) => Promise<O>): (deps: D, input: I) => Promise<O & Observation> {
  return async (deps, input) => {
    const begunAt = performance.now();
    const scope = currentScope();
    const account = currentAccount();
    const { life } = deps;
    const step = Math.max(input.step ?? 0, 0);
    const before = interrupted(whatEnded(life, input.run, scope, begunAt), input, scope, life);
    account.begins(before, (restored) => explained(deps, input, scope, step, restored, account.engine));
    try {
      const answer = await activity(deps, input);
      // Return the finished work even if the store does not accept the evidence.
      await attemptEvidence(deps.store, input.run, step, scope, life)
        .recovered()
        .catch((problem: Error) =>
          deps.log(`the cost of the last failure could not be recorded: ${problem.message}`),
        );
      if (account.engine !== null) life.engines.set(input.run, account.engine);
      return { ...answer, ...observation(begunAt) };
    } catch (error) {
      const { recoveries, waited_seconds } = account.snapshot;
      const failure = failureOf(error, scope, life, account);
      life.ended(nameOf(input.run, scope), { failure, recoveries, waited_seconds });
      throw error;
    }
  };
}

/**
 * Adds the workflow's interruptions. Each retry of an activity receives the same list: readers count an event once however often it is
 * recorded, and a wait is added on the first try only.
 */
function interrupted(
  ended: EndedAttempt,
  { run, interruptions = [] }: { run: string } & OnNode,
  { activity }: AttemptScope,
  life: ProcessLife,
): EndedAttempt {
  const recoveries = [...ended.recoveries];
  let { waited_seconds } = ended;
  // The newest first: of several drained leases of this node, the last one was the predecessor's.
  for (const { seconds, ...one } of interruptions.toReversed()) {
    if (one.what === 'waited') waited_seconds += Context.current().info.attempt === 1 ? seconds : 0;
    else {
      const silent = one.what === 'node_lost' ? seconds : 0;
      const { what: cause } = one;
      const isKnown = cause === 'node_drained' && !isOfSweep(activity);
      const event = isKnown ? life.departureEvent(run, one.event, one.node) : one.event;
      const cost = { lost: nothingLost, detection_seconds: silent, down_seconds: seconds };
      if (event !== null) recoveries.push({ cause, event, ...cost });
    }
  }
  return { ...ended, recoveries, waited_seconds };
}

function nameOf(run: string, { activity }: AttemptScope): string {
  return `${run}/${activity}`;
}

/**
 * Finds what ended the previous attempt, even if that attempt's process has died: its last heartbeat came at most two seconds before its
 * death.
 */
function whatEnded(life: ProcessLife, run: string, scope: AttemptScope, begunAt: number): EndedAttempt {
  const { info } = Context.current();
  const name = nameOf(run, scope);
  const seen = life.noteExecution(scope.execution);
  const ended = life.takeEnded(name);
  // On a first try, the earlier failure was final. The time since then was a wait for a person, so it does not count as downtime.
  if (ended) {
    const failure = ended.failure && {
      ...ended.failure,
      failedAt: info.attempt > 1 ? ended.failure.failedAt : begunAt,
    };
    return { ...ended, failure };
  }
  const { predecessor } = life;
  const isNew = life.restart === 'orchestrator_restart' && !life.noteRun(run);
  if (info.attempt === 1) {
    const killed = isNew && predecessor && !predecessor.left;
    const failure = killed ? { ...restartOf(life.restart, predecessor, null), failedAt: begunAt } : null;
    return { failure, recoveries: [], waited_seconds: 0 };
  }
  const reported = snapshotIn(info.heartbeatDetails);
  const carried = { recoveries: reported?.recoveries ?? [], waited_seconds: reported?.waited_seconds ?? 0 };
  if (seen || !predecessor || info.scheduledTimestampMs > predecessor.noticedAt + clockTolerance) {
    // The server gave up on the attempt although nothing failed here. Either its result was lost, or the attempt never reached a worker.
    const lost = seen ? nothingLost : (reported?.lost ?? nothingLost);
    const event = `${scope.execution}.${info.attempt - 1}`;
    return {
      ...carried,
      failure: { cause: 'timeout', event, lost, detection_seconds: 0, failedAt: begunAt },
    };
  }
  return { ...carried, failure: restartOf(life.restart, predecessor, reported) };
}

function restartOf(
  cause: ProcessLife['restart'],
  { identity, aliveAt, noticedAt, left }: Predecessor,
  reported: AttemptSnapshot | null,
): Failure {
  const lost = reported?.lost ?? nothingLost;
  // The work in progress continued after the last heartbeat, until the process died.
  const late = reported && lost.seconds > 0 ? Math.max(0, aliveAt - reported.at) / 1000 : 0;
  return {
    cause: left ? 'node_drained' : cause,
    event: identity,
    lost: { ...lost, seconds: rounded(lost.seconds + late) },
    detection_seconds: rounded((noticedAt - aliveAt) / 1000),
    failedAt: performance.now() - Math.max(0, Date.now() - aliveAt),
  };
}

function failureOf(
  error: unknown,
  { signal, execution, attempt }: AttemptScope,
  life: ProcessLife,
  account: AttemptAccount,
): Failure | null {
  const cause = causeOf(signal.aborted ? signal.reason : error);
  if (cause === null) return null;
  const noticed = error instanceof EngineExited ? error.noticedAfterMs / 1000 : 0;
  return {
    cause,
    event:
      error instanceof EngineExited
        ? `${life.identity}, engine ${error.pid}`
        : cause === 'node_drained'
          ? life.identity
          : `${execution}.${attempt.split('.').at(-1)}`,
    lost: account.lost,
    detection_seconds: rounded(noticed),
    failedAt: performance.now() - noticed * 1000,
  };
}

/** Null if the attempt was ended on purpose. */
function causeOf(error: unknown): RecoveryCause | null {
  if (!(error instanceof Error)) return 'error';
  if (error instanceof CancelledFailure) {
    if (error.message === 'WORKER_SHUTDOWN') return 'node_drained';
    return ['NOT_FOUND', 'TIMED_OUT'].includes(error.message) ? 'timeout' : null;
  }
  if (error instanceof ApplicationFailure && error.type === 'NodeDraining') return 'node_drained';
  if (error.name === 'AttemptSuperseded') return 'timeout';
  if (error.name === 'OwnerChanged') return null;
  if (error instanceof EngineExited) return 'engine_exit';
  if (error instanceof EnvironmentError || error.name === 'EnvironmentsUnavailable') return 'environment';
  if (error.name === 'Diverged') return 'diverged';
  if (error instanceof ServiceError || isGrpcServiceError(error)) return 'temporal';
  return mendsItself(error) ? 'store' : 'error';
}

/** Names the cause of a restore without a known failure: some process had ended while no work of the run was in progress. */
async function explained(
  deps: RecoveryDeps,
  { run, interruptions = [] }: { run: string } & OnNode,
  scope: AttemptScope,
  step: number,
  restored: Restored,
  engine: string | null,
): Promise<Recovery> {
  const recovery = (cause: RecoveryCause, event: string): Recovery => ({
    cause,
    event,
    lost: nothingLost,
    detection_seconds: 0,
    down_seconds: rounded(restored.restore.seconds + restored.replay.seconds),
    ...restored,
  });
  const { life, store } = deps;
  const used = life.engines.get(run);
  if (used !== undefined && used !== engine)
    return recovery('engine_exit', `${life.identity}, engine ${used}`);
  if (used !== undefined) return recovery('engine_shared', scope.execution);
  const { predecessor } = life;
  const stateStep = isAtState(scope.activity) ? step : step - 1;
  // The workflow itself reports a predecessor that left when asked to, or that was declared lost before this process replaced it.
  const isReported = predecessor?.left === true || interruptions.some(({ what }) => what === 'node_lost');
  if (predecessor && !isReported && (await wasServedBy(store, run, stateStep, life.node))) {
    const detection_seconds = rounded((predecessor.noticedAt - predecessor.aliveAt) / 1000);
    return { ...recovery('worker_restart', predecessor.identity), detection_seconds };
  }
  return recovery('placed', life.identity);
}

/** True if a process of this node committed the step for the workflow that now drives the run. */
async function wasServedBy(store: ObjectStore, run: string, step: number, node: string): Promise<boolean> {
  if (step < 1) return false;
  const update = await readUpdateIfAny(store, run, step);
  if (update?.identity.run !== run || nodeOf(update.observed.worker ?? '') !== node) return false;
  const [plan, owners] = await Promise.all([
    readPlan(store, { run, step }),
    readSequence(store, ownersFolder(run), 'owner'),
  ]);
  return owners[plan.owner - 1]?.firstExecutionRunId === owners.at(-1)?.firstExecutionRunId;
}

function snapshotIn(details: unknown): AttemptSnapshot | null {
  const { ft } = (typeof details === 'object' && details !== null ? details : {}) as { ft?: AttemptSnapshot };
  return typeof ft?.at === 'number' && Array.isArray(ft.recoveries) ? ft : null;
}
