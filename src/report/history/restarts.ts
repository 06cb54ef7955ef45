// Which restarts of processes a run has survived, from its records.
import type { AttemptRecord } from '../../spec/records/attempt-records.js';
import type { OwnerRecord } from '../../spec/records/run-records.js';
import { readAttemptsIn } from '../../store/runs/step-attempts.js';
import { inParallel } from '../../base/in-parallel.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { timelineOf } from '../../store/runs/run-records.js';
import type { RunHistory } from './run-history.js';

export type RestartedProcess = 'engine' | 'node worker' | 'orchestrator' | 'workflow' | 'Temporal server';

export interface Restart {
  process: RestartedProcess;
  /** First step with the new one; null if no step shows it (owners). */
  step: number | null;
  /** Name of the new one. */
  successor: string;
}

export interface StepAttempt {
  step: number;
  record: AttemptRecord;
}

/** Attempt records of all steps, in the order in which they were written. */
export async function readAttempts(
  store: ObjectStore,
  { record, updates }: RunHistory,
): Promise<StepAttempt[]> {
  const first = record.lineage?.step ?? 0;
  // A fork's work at the state that it left from is its own.
  const places = [0, ...updates.map(({ identity }) => identity.step)].map(async (step) => ({
    step,
    runs: [...new Set([await timelineOf(store, record.run, step), ...(step === first ? [record.run] : [])])],
  }));
  const listed = await inParallel(await Promise.all(places), async ({ step, runs }) => {
    const found = await Promise.all(runs.map((run) => readAttemptsIn(store, run, step)));
    return found.flat().map((attempt) => ({ step, record: attempt }));
  });
  return listed
    .flat()
    .sort((a, b) => a.step - b.step || a.record.observed.at.localeCompare(b.record.observed.at));
}

/**
 * Every change of a process' name from one record of the run to the next; its parent's are the parent's. A process that died between two
 * records counts once.
 */
export function restartsOf(history: RunHistory, attempts: readonly StepAttempt[]): Restart[] {
  const { run, lineage } = history.record;
  const engines = history.updates
    .filter(({ identity }) => identity.run === run)
    .map(({ identity, observed }) => ({ step: identity.step, name: observed.engine.incarnation }));
  const workers = new Map<string, { step: number; name: string }[]>();
  const own = attempts.filter(({ step }) => step >= (lineage?.step ?? 0));
  for (const { step, record } of own) {
    const { node, pid } = record.observed;
    // The owners show the orchestrator's restarts; several nodes may work on one step.
    if (record.activity.endsWith('/plan')) continue;
    workers.set(node, [...(workers.get(node) ?? []), { step, name: `${node} pid ${pid}` }]);
  }
  const owner = (name: (one: OwnerRecord) => string) =>
    history.owners.map((one) => ({ step: null, name: name(one) }));
  return [
    ...changes('engine', engines),
    ...[...workers.values()].flatMap((of) => changes('node worker', of)),
    ...changes(
      'orchestrator',
      owner((one) => one.observed.by),
    ),
    ...changes(
      'workflow',
      owner((one) => one.firstExecutionRunId),
    ),
    ...changes(
      'Temporal server',
      owner((one) => `${one.address} (cluster ${one.clusterId.slice(0, 8)})`),
    ),
  ];
}

function changes(process: RestartedProcess, seen: { step: number | null; name: string }[]): Restart[] {
  return seen.flatMap(({ step, name }, index) =>
    index > 0 && name !== seen[index - 1]?.name ? [{ process, step, successor: name }] : [],
  );
}
