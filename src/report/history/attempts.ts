// Reads the attempts at a run's steps, including the steps of its ancestors.
import type { AttemptRecord } from '../../spec/records/attempt-records.js';
import { readAttemptsIn } from '../../store/runs/step-attempts.js';
import { inParallel } from '../../base/in-parallel.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { timelineOf } from '../../store/runs/run-records.js';
import type { RunHistory } from './run-history.js';

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
  // At the step at which a fork began, both the parent and the fork have attempts: read both.
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
