// Reads the attempts at a run's own steps, without the attempts of the runs from which it was forked.
import type { AttemptRecord } from '../../spec/records/attempt-records.js';
import { readAttemptsIn } from '../../store/runs/step-attempts.js';
import { inParallel } from '../../base/in-parallel.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import type { RunHistory } from './run-history.js';

export interface StepAttempt {
  step: number;
  record: AttemptRecord;
}

/** Attempt records by step, within a step in the order in which they were written. */
export async function readAttempts(
  store: ObjectStore,
  { record, updates }: RunHistory,
): Promise<StepAttempt[]> {
  // A fork has attempts, such as evaluations, at the state from which it began; its parent's attempts there are in the parent's folder.
  const first = record.lineage?.step ?? 0;
  const own = updates.map(({ identity }) => identity.step).filter((step) => step > first);
  const listed = await inParallel([first, ...own], async (step) => {
    const found = await readAttemptsIn(store, record.run, step);
    return found.map((attempt) => ({ step, record: attempt }));
  });
  return listed
    .flat()
    .sort((a, b) => a.step - b.step || a.record.observed.at.localeCompare(b.record.observed.at));
}
