// Reads the attempt records of a step. No step depends on them, so readers skip an unreadable one (the audit reports it).
import type { AttemptRecord } from '../../spec/records/attempt-records.js';
import { inParallel } from '../../base/in-parallel.js';
import { attemptsFolder } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readIfWhole } from '../records/records.js';

/**
 * Reads the attempts that count towards a step: attempts to make it, and at the state before it (`isAtState`). The latter may outlast the step.
 * Each folder is read only once.
 */
export function stepAttemptsReader(
  store: ObjectStore,
  run: string,
): (step: number) => Promise<AttemptRecord[]> {
  const folders = new Map<number, Promise<AttemptRecord[]>>();
  const read = (step: number): Promise<AttemptRecord[]> => {
    const found = folders.get(step) ?? readAttemptsIn(store, run, step);
    folders.set(step, found);
    return found;
  };
  return (step) => stepAttempts(step, read);
}

async function stepAttempts(
  step: number,
  read: (step: number) => Promise<AttemptRecord[]>,
): Promise<AttemptRecord[]> {
  const [own, before] = await Promise.all([read(step), read(step - 1)]);
  return [
    ...own.filter(({ activity }) => !isAtState(activity)),
    ...before.filter(({ activity }) => isAtState(activity)),
  ];
}

export async function readAttemptsIn(
  store: ObjectStore,
  run: string,
  step: number,
): Promise<AttemptRecord[]> {
  const keys: string[] = [];
  for await (const { key } of store.list(attemptsFolder(run, step))) keys.push(key);
  const found = await inParallel(keys, (key) => readIfWhole(store, key, 'attempt'));
  return found.filter((record) => record !== null);
}

/** True for an activity id of the workflow `evalSweep`. Its attempts are stored under the run whose state it evaluates. */
export function isOfSweep(activity: string): boolean {
  return /^step-\d+\/evaluate-sweep-/.test(activity);
}

/** True for an activity at the state after its step (base or evaluation); all other activities work towards that state. */
export function isAtState(activity: string): boolean {
  return /^step-\d+\/(base|evaluate)/.test(activity);
}
