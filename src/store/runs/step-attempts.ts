// The attempt records of a step: evidence, never truth, so an unreadable one is passed over (the audit names it).
import type { AttemptRecord } from '../../spec/records/attempt-records.js';
import { inParallel } from '../../base/in-parallel.js';
import { attemptsFolder } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readIfWhole } from '../records/records.js';

/** The attempts that count towards a step: its own, and those at the state before it, which may have ended after the step's update. */
export function readStepAttempts(store: ObjectStore, run: string, step: number): Promise<AttemptRecord[]> {
  return stepAttempts(step, (folder) => readAttemptsIn(store, run, folder));
}

/** `readStepAttempts` for one step after another: each folder is read once. */
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

/** The workflow `evalSweep` gives its activities such ids; their attempts lie with the run of the played state. */
export function isOfSweep(activity: string): boolean {
  return /^step-\d+\/evaluate-sweep-/.test(activity);
}

/** Done at the state after its step, not on the way to it. */
export function isAtState(activity: string): boolean {
  return /^step-\d+\/(base|evaluate)/.test(activity);
}
