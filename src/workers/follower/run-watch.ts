// Asks Temporal which runs exist and in which state their workflows are: no record shows this. It only reads workflows.
import { Backoff } from '../../base/backoff.js';
import {
  type Client,
  WorkflowFailedError,
  WorkflowNotFoundError,
  type WorkflowExecutionInfo,
} from '@temporalio/client';
import { defineSearchAttributeKey } from '@temporalio/common';
import type { RunStatus } from '../../activities/contracts.js';
import { inParallel } from '../../base/in-parallel.js';
import { namesFolder, ownersFolder } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readSequence } from '../../store/records/records.js';
import type { RunEnding } from './run-events.js';

/** A run and the workflow start that drives it. `firstRunId` stays the same through continue-as-new and a reset. */
export interface DrivenRun {
  run: string;
  workflowId: string;
  firstRunId: string;
  standing: RunStanding;
}

type Execution = Pick<
  WorkflowExecutionInfo,
  'workflowId' | 'runId' | 'status' | 'startTime' | 'closeTime' | 'typedSearchAttributes'
>;

interface Driver {
  run: string;
  firstRunId: string;
}

const answerWithinMs = 15_000;
/** Pause before a workflow that has not claimed its run yet is asked again; it doubles up to the longest. */
const unclaimedMs: [first: number, longest: number] = [2_000, 60_000];
const phaseKey = defineSearchAttributeKey('Phase', 'KEYWORD');
const openStatuses: readonly string[] = ['RUNNING', 'PAUSED'];

export class RunWatch {
  /** Caches, by the run id of a workflow execution. */
  private drivers = new Map<string, Driver>();
  private unclaimed = new Map<string, { notBefore: number; pauses: Backoff }>();
  private endings = new Map<string, RunEnding>();
  private blocked = new Map<
    string,
    { phase: string; historyLength: number; blocked: RunStanding['blocked'] }
  >();

  constructor(
    private readonly client: Client,
    private readonly store: ObjectStore,
  ) {}

  /** Open runs, and runs that closed after `closedSince`. Throws errors of Temporal and the store. */
  async look(closedSince: Date): Promise<DrivenRun[]> {
    const executions = await this.executions(closedSince);
    const known = new Set(executions.map(({ runId }) => runId));
    for (const cache of [this.drivers, this.unclaimed, this.endings, this.blocked])
      for (const runId of cache.keys()) if (!known.has(runId)) cache.delete(runId);
    const newest = new Map<string, { execution: Execution; driver: Driver }>();
    for (const execution of executions) {
      const driver = await this.driverOf(execution);
      const other = driver && newest.get(driver.run);
      if (driver && !(other && other.execution.startTime > execution.startTime))
        newest.set(driver.run, { execution, driver });
    }
    return inParallel([...newest.values()], async ({ execution, driver }) => ({
      ...driver,
      workflowId: execution.workflowId,
      standing: await this.standingOf(execution, driver.firstRunId),
    }));
  }

  /** Standing of a run that `look` does not return: it closed earlier, or Temporal has forgotten it. */
  async standing({
    workflowId,
    firstRunId,
  }: Pick<DrivenRun, 'workflowId' | 'firstRunId'>): Promise<RunStanding> {
    const forgotten: RunStanding = { over: true, ending: null, phase: null, blocked: null };
    try {
      const described = await this.ask(() => this.client.workflow.getHandle(workflowId).describe());
      const first = described.raw.workflowExecutionInfo?.firstRunId;
      return first && first !== firstRunId ? forgotten : await this.standingOf(described, firstRunId);
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return forgotten;
      throw error;
    }
  }

  private async executions(closedSince: Date): Promise<Execution[]> {
    const query =
      `WorkflowType = "trainingRun" AND (ExecutionStatus = "Running" ` +
      `OR CloseTime > "${closedSince.toISOString()}")`;
    return this.ask(async () => {
      const found: Execution[] = [];
      for await (const execution of this.client.workflow.list({ query }))
        if (execution.status.name !== 'CONTINUED_AS_NEW') found.push(execution);
      return found;
    });
  }

  /** The run that an execution drives. Null until it has claimed a run; if it ends before that, null for ever. */
  private async driverOf({ workflowId, runId, status }: Execution): Promise<Driver | null> {
    const known = this.drivers.get(runId);
    if (known) return known;
    const waiting = this.unclaimed.get(runId);
    if (waiting && performance.now() < waiting.notBefore) return null;
    const name = workflowId.replace(/^train\//, '');
    const { raw } = await this.ask(() => this.client.workflow.getHandle(workflowId, runId).describe());
    const firstRunId = raw.workflowExecutionInfo?.firstRunId || runId;
    for (const { run } of (await readSequence(this.store, namesFolder(name), 'name')).reverse()) {
      const owners = await readSequence(this.store, ownersFolder(run), 'owner');
      if (!owners.some((owner) => owner.firstExecutionRunId === firstRunId)) continue;
      const driver = { run, firstRunId };
      this.drivers.set(runId, driver);
      this.unclaimed.delete(runId);
      return driver;
    }
    const pauses = waiting?.pauses ?? new Backoff(unclaimedMs);
    const notBefore = openStatuses.includes(status.name) ? performance.now() + pauses.next() : Infinity;
    this.unclaimed.set(runId, { notBefore, pauses });
    return null;
  }

  private async standingOf(execution: Execution, firstRunId: string): Promise<RunStanding> {
    const phase = execution.typedSearchAttributes.get(phaseKey) ?? null;
    if (!openStatuses.includes(execution.status.name))
      return { over: true, ending: await this.endingOf(execution, firstRunId), phase, blocked: null };
    return { over: false, ending: null, phase, blocked: await this.blockedOf(execution, phase) };
  }

  private async endingOf(execution: Execution, firstRunId: string): Promise<RunEnding> {
    const known = this.endings.get(execution.runId);
    if (known) return known;
    const { name } = execution.status;
    const how =
      name === 'COMPLETED' ? 'completed' : /^(FAILED|TIMED_OUT)$/.test(name) ? 'failed' : 'cancelled';
    const at = (execution.closeTime ?? new Date()).toISOString();
    const { runId } = execution;
    const ending: RunEnding = { firstRunId, runId, how, at, reason: await this.reasonOf(execution) };
    this.endings.set(execution.runId, ending);
    return ending;
  }

  private async reasonOf({ workflowId, runId }: Execution): Promise<string | null> {
    try {
      const result = (await this.ask(() => this.client.workflow.getHandle(workflowId, runId).result())) as {
        ended?: unknown;
        budget?: unknown;
      } | null;
      if (result?.ended !== 'stopped') return null;
      return typeof result.budget === 'string' ? result.budget : 'stopped on request';
    } catch (error) {
      if (!(error instanceof WorkflowFailedError)) throw error;
      return innermost(error);
    }
  }

  /**
   * Why a run is blocked or failing. A query needs a worker, so it is sent again only if the run's history has grown. The phase is not
   * enough: a run may be resumed and blocked again between two looks. A new reason always adds an event to the history.
   */
  private async blockedOf(
    { workflowId, runId }: Execution,
    phase: string | null,
  ): Promise<RunStanding['blocked']> {
    if (phase !== 'blocked' && phase !== 'failing') {
      this.blocked.delete(runId);
      return null;
    }
    const handle = this.client.workflow.getHandle(workflowId, runId);
    // Read the length before the query: the next look then sees later events.
    const { historyLength } = await this.ask(() => handle.describe());
    const known = this.blocked.get(runId);
    if (known?.phase === phase && known.historyLength === historyLength) return known.blocked;
    // If no worker answers, only the phase is known.
    const status = await this.ask(() => handle.query('status')).catch(() => null);
    const { blocked = null, failing = null } = (status ?? {}) as Partial<RunStatus>;
    const waitsFor = phase === 'blocked' ? blocked : failing;
    if (waitsFor) this.blocked.set(runId, { phase, historyLength, blocked: waitsFor });
    return waitsFor;
  }

  private ask<T>(call: () => Promise<T>): Promise<T> {
    return this.client.withDeadline(Date.now() + answerWithinMs, call);
  }
}

/** The message of the innermost cause, which is for people. Null if only the SDK's own message exists. */
function innermost(error: Error): string | null {
  let inner = error;
  while (inner.cause instanceof Error) inner = inner.cause;
  return inner === error || inner.message.startsWith('Workflow execution ') ? null : inner.message;
}

/** What only Temporal knows about a run. The follower process keeps it current, and the run's followers read it. */
export interface RunStanding {
  /** True once the run writes no more records. */
  over: boolean;
  /** Null while the run continues, and if Temporal no longer knows its workflow. */
  ending: RunEnding | null;
  /** The phase as the workflow reports it; null if the workflow could not be asked. */
  phase: string | null;
  /** Why the run waits for a person, or which failure repeats and is still tried. */
  blocked: { reason: string; remedy: string } | null;
}

/** Removes secrets by `clean`, because the failures of workflows repeat messages from outside. */
export function discreet(standing: RunStanding, clean: (text: string) => string): RunStanding {
  const { ending, blocked } = standing;
  return {
    ...standing,
    ending: ending && { ...ending, reason: ending.reason && clean(ending.reason) },
    blocked: blocked && { reason: clean(blocked.reason), remedy: clean(blocked.remedy) },
  };
}
