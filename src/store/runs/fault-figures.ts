// The figures ft/*: what faults have cost a run, counted from its records. Totals since the run began are in each update.json, so
// that no reader has to add up what lies before.
import type { AttemptRecord, Recovery, RecoveryCause } from '../../spec/records/attempt-records.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { inParallel } from '../../base/in-parallel.js';
import { attemptsFolder } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { requireRecord } from '../records/records.js';

/** By name, `ft/…`; a figure that is not there is 0. */
export type FaultFigures = Record<string, number>;

/** A state that had to be restored because a run came to a node, or shares it: nothing has failed. */
const noFault: readonly RecoveryCause[] = ['placed', 'engine_shared'];

export function isFault({ cause }: Pick<Recovery, 'cause'>): boolean {
  return !noFault.includes(cause);
}

/** Figures of the records that count towards one step (`readStepAttempts`). Faults of a sweep at a state of the run cost the run nothing. */
export function faultsIn(all: readonly AttemptRecord[]): FaultFigures {
  const attempts = all.filter(({ activity }) => !isOfSweep(activity));
  const events = new Map<string, { activity: string; recovery: Recovery }[]>();
  for (const { activity, observed } of attempts) {
    for (const recovery of observed.recoveries ?? []) {
      const name = `${recovery.cause} ${recovery.event}`;
      events.set(name, [...(events.get(name) ?? []), { activity, recovery }]);
    }
  }
  const figures: FaultFigures = {};
  const add = (name: string, value: number): void => {
    if (value > 0) figures[`ft/${name}`] = rounded((figures[`ft/${name}`] ?? 0) + value);
  };
  for (const seen of events.values()) {
    const recoveries = seen.map(({ recovery }) => recovery);
    const [first] = recoveries;
    if (first && isFault(first)) add(`restarts/${first.cause}`, 1);
    // Activities that one death ended were down at the same time; what each of them lost is its own.
    const longest = (seconds: (recovery: Recovery) => number): number => Math.max(...recoveries.map(seconds));
    add('lost_seconds', longest(({ lost }) => lost.seconds) + longest(({ down_seconds }) => down_seconds));
    add(
      'detection_seconds',
      longest((one) => one.detection_seconds),
    );
    for (const { lost, restore, replay } of recoveries) {
      add('lost_tokens', lost.tokens);
      add('lost_episodes', lost.episodes);
      add('restore_seconds', restore?.seconds ?? 0);
      add('restore_bytes', restore?.bytes ?? 0);
      add('replay_seconds', replay?.seconds ?? 0);
      add('replayed_steps', replay?.steps ?? 0);
    }
  }
  add('waiting_seconds', waitedIn(attempts));
  return figures;
}

/** Activities of one step wait beside each other, the attempts of one after another. */
function waitedIn(attempts: readonly AttemptRecord[]): number {
  const waited = new Map<string, number>();
  for (const { activity, observed } of attempts)
    waited.set(activity, (waited.get(activity) ?? 0) + (observed.waited_seconds ?? 0));
  return Math.max(0, ...waited.values());
}

export function plusFigures(one: FaultFigures, other: FaultFigures): FaultFigures {
  const sum = { ...one };
  for (const [name, value] of Object.entries(other)) sum[name] = rounded((sum[name] ?? 0) + value);
  return sum;
}

/** The part of `figures` that the totals did not grow by from `before` to `after`. */
export function uncounted(figures: FaultFigures, before: FaultFigures, after: FaultFigures): FaultFigures {
  const missing: FaultFigures = {};
  for (const [name, value] of Object.entries(figures)) {
    const left = rounded(value - Math.max(0, (after[name] ?? 0) - (before[name] ?? 0)));
    // Totals are in whole milliseconds.
    if (left > 0.001) missing[name] = left;
  }
  return missing;
}

/** What `update.json` says of the run up to its step; nothing where it is another run's, which this one was forked from. */
export function figuresOf(run: string, update: UpdateRecord | null): FaultFigures {
  if (update?.identity.run !== run) return {};
  return Object.fromEntries(
    Object.entries(update.observed.metrics).filter(([name]) => name.startsWith('ft/')),
  );
}

/** In which the run could get on: no person held it up, and somebody drove it. */
export function availableSeconds(figures: FaultFigures): number {
  const of = (name: string): number => figures[`ft/${name}`] ?? 0;
  return of('wall_seconds') - of('paused_seconds') - of('blocked_seconds') - of('unowned_seconds');
}

/** With `ft/wall_seconds` as they are now, and `ft/ettr`: the share of the available time in which the run got on. */
export function asOf(wallSeconds: number, figures: FaultFigures): FaultFigures {
  const wall = rounded(wallSeconds);
  const of = (name: string): number => figures[`ft/${name}`] ?? 0;
  const available = availableSeconds({ ...figures, 'ft/wall_seconds': wall });
  const idle = of('lost_seconds') + of('waiting_seconds');
  const ettr = available > 0 ? Math.min(1, Math.max(0, 1 - idle / available)) : 1;
  return { ...figures, 'ft/wall_seconds': wall, 'ft/ettr': Math.round(ettr * 10_000) / 10_000 };
}

/**
 * The attempts that count towards a step: its own, and those of what was done at the state before it, which may have ended after
 * that one's update.
 */
export async function readStepAttempts(
  store: ObjectStore,
  run: string,
  step: number,
): Promise<AttemptRecord[]> {
  const [own, before] = await Promise.all([
    readAttemptsIn(store, run, step),
    readAttemptsIn(store, run, step - 1),
  ]);
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
  return inParallel(keys, (key) => requireRecord(store, key, 'attempt'));
}

/** Named so by the workflow `evalSweep`; its attempts lie with the run whose state it plays. */
function isOfSweep(activity: string): boolean {
  return /^step-\d+\/evaluate-sweep-/.test(activity);
}

/** Done at the state after its step, not on the way to it. */
export function isAtState(activity: string): boolean {
  return /^step-\d+\/(base|evaluate)/.test(activity);
}

function rounded(value: number): number {
  return Math.round(value * 1000) / 1000;
}
