// Which processes a run has outlived, read from what they left in its records.
import type { AttemptRecord, OwnerRecord } from '../spec/records.js';
import { inParallel } from '../store/in-parallel.js';
import { attemptsFolder } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { requireRecord } from '../store/records.js';
import { timelineOf } from '../store/run-records.js';
import type { RunHistory } from './run-history.js';

export type RestartedProcess = 'engine' | 'node worker' | 'orchestrator' | 'workflow' | 'Temporal server';

export interface Restart {
  process: RestartedProcess;
  /** First step that the new one is seen at; null where no step tells (owners). */
  step: number | null;
  /** What the new one is called. */
  successor: string;
}

export interface StepAttempt {
  step: number;
  record: AttemptRecord;
}

/** One attempt record of each attempt of each step, in the order in which they were written. */
export async function readAttempts(
  store: ObjectStore,
  { record, updates }: RunHistory,
): Promise<StepAttempt[]> {
  const steps = updates
    .filter(({ identity }) => identity.kind === 'grpo')
    .map(({ identity }) => identity.step);
  const listed = await inParallel(steps, async (step) => {
    const folder = attemptsFolder(await timelineOf(store, record.run, step), step);
    const keys: string[] = [];
    for await (const { key } of store.list(folder)) if (key.endsWith('/1.json')) keys.push(key);
    return keys.map((key) => ({ step, key }));
  });
  const attempts = await inParallel(listed.flat(), async ({ step, key }) => ({
    step,
    record: await requireRecord(store, key, 'attempt'),
  }));
  return attempts.sort((a, b) => a.step - b.step || a.record.observed.at.localeCompare(b.record.observed.at));
}

/** Every change of a process' name from one record to the next. A process that died between two records counts once. */
export function restartsOf(history: RunHistory, attempts: readonly StepAttempt[]): Restart[] {
  const engines = history.updates.map(({ identity, observed }) => ({
    step: identity.step,
    name: observed.engine.incarnation,
  }));
  const workers = attempts.map(({ step, record }) => ({
    step,
    name: `${record.observed.node} pid ${record.observed.pid}`,
  }));
  const owner = (name: (one: OwnerRecord) => string) =>
    history.owners.map((one) => ({ step: null, name: name(one) }));
  return [
    ...changes('engine', engines),
    ...changes('node worker', workers),
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
