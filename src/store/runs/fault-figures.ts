// The figures ft/*: the cost of faults to a run up to a step, counted from its records on request. No step writes them.
import type { AttemptRecord, Recovery, RecoveryCause } from '../../spec/records/attempt-records.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { inParallel } from '../../base/in-parallel.js';
import { ownersFolder } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readSequence } from '../records/records.js';
import { readControl } from './control-records.js';
import { type Driving, heldBetween } from './held-time.js';
import { readUpdates } from './run-records.js';
import { isOfSweep, stepAttemptsReader } from './step-attempts.js';

const pageSteps = 64;

/** Figures by name (`ft/…`); a missing figure is 0. */
export type FaultFigures = Record<string, number>;

/** Causes of a restore that are no faults: the run moved to a node, or shares its engine. */
const noFault: readonly RecoveryCause[] = ['placed', 'engine_shared'];

export function isFault({ cause }: Pick<Recovery, 'cause'>): boolean {
  return !noFault.includes(cause);
}

/** The recoveries of a step's attempts, one list for each failure or move. Faults of a sweep that evaluates the run's states do not count. */
function eventsIn(attempts: readonly AttemptRecord[]): Recovery[][] {
  const events = new Map<string, Recovery[]>();
  for (const { activity, observed } of attempts) {
    if (isOfSweep(activity)) continue;
    for (const recovery of observed.recoveries ?? []) {
      const name = `${recovery.cause} ${recovery.event}`;
      events.set(name, [...(events.get(name) ?? []), recovery]);
    }
  }
  return [...events.values()];
}

/** How many failures of a step were noticed only after a time. A node that signs off is noticed at once. */
export function noticedLaterIn(attempts: readonly AttemptRecord[]): number {
  return eventsIn(attempts).filter((seen) => seen.some(({ detection_seconds }) => detection_seconds > 0))
    .length;
}

/** Figures of one step, from its attempts (`stepAttemptsReader`). */
export function faultsIn(attempts: readonly AttemptRecord[]): FaultFigures {
  const figures: FaultFigures = {};
  const add = (name: string, value: number): void => {
    if (value > 0) figures[`ft/${name}`] = rounded((figures[`ft/${name}`] ?? 0) + value);
  };
  for (const recoveries of eventsIn(attempts)) {
    const [first] = recoveries;
    if (first && isFault(first)) add(`restarts/${first.cause}`, 1);
    // One death ends several activities: they were down at the same time, but each lost its own work.
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

/** Seconds of waiting: activities of a step wait in parallel, attempts of one activity wait one after another. */
function waitedIn(attempts: readonly AttemptRecord[]): number {
  const waited = new Map<string, number>();
  for (const { activity, observed } of attempts.filter((one) => !isOfSweep(one.activity)))
    waited.set(activity, (waited.get(activity) ?? 0) + (observed.waited_seconds ?? 0));
  return Math.max(0, ...waited.values());
}

export function plusFigures(one: FaultFigures, other: FaultFigures): FaultFigures {
  const sum = { ...one };
  for (const [name, value] of Object.entries(other)) sum[name] = rounded((sum[name] ?? 0) + value);
  return sum;
}

/** The figures that `withFaults` added to an update; empty if the update belongs to a run from which this run was forked. */
export function figuresOf(run: string, update: UpdateRecord | null): FaultFigures {
  if (update?.identity.run !== run) return {};
  return Object.fromEntries(
    Object.entries(update.observed.metrics).filter(([name]) => name.startsWith('ft/')),
  );
}

/** Figures of a run's own steps up to `step`; `at`: when that step was committed, ISO 8601. */
export interface FaultTotals {
  step: number;
  at: string;
  figures: FaultFigures;
}

/** The records from which figures are counted, in addition to updates and attempts. */
interface RunEvidence extends Driving {
  record: Pick<RunRecord, 'run' | 'lineage' | 'observed'>;
}

/** Totals before the run's own first step. */
export function noFaults({ lineage, observed }: RunEvidence['record']): FaultTotals {
  return { step: lineage?.step ?? 0, at: observed.started_at, figures: {} };
}

export function faultsAfter(update: UpdateRecord): FaultTotals {
  const { identity, observed } = update;
  return { step: identity.step, at: observed.committed_at, figures: figuresOf(identity.run, update) };
}

/** Returns `update` with the figures up to its step in its metrics. `update`: the one after `before.step`; `attempts`: of its step. */
export function withFaults(
  update: UpdateRecord,
  before: FaultTotals,
  attempts: readonly AttemptRecord[],
  evidence: RunEvidence,
): UpdateRecord {
  const { observed } = update;
  const to = Date.parse(observed.committed_at);
  const held = Object.entries(heldBetween(Date.parse(before.at), to, attempts, evidence))
    .filter(([, seconds]) => seconds > 0)
    .map(([holder, seconds]) => [`ft/${holder}_seconds`, seconds] as const);
  const figures = [faultsIn(attempts), Object.fromEntries(held)].reduce(plusFigures, before.figures);
  const wall = (to - Date.parse(evidence.record.observed.started_at)) / 1000;
  return { ...update, observed: { ...observed, metrics: { ...observed.metrics, ...asOf(wall, figures) } } };
}

/** Returns `updates`, which follow `before.step` in order, each with the figures up to its step in its metrics (`withFaults`). */
export async function projectFaults(
  store: ObjectStore,
  evidence: RunEvidence,
  before: FaultTotals,
  updates: readonly UpdateRecord[],
): Promise<UpdateRecord[]> {
  const attemptsOf = stepAttemptsReader(store, evidence.record.run);
  const attempts = await inParallel(updates, ({ identity }) => attemptsOf(identity.step));
  let totals = before;
  return updates.map((update, index) => {
    const projected = withFaults(update, totals, attempts[index] ?? [], evidence);
    totals = faultsAfter(projected);
    return projected;
  });
}

/** Totals up to `step`; the count continues from `known`, the totals up to an earlier step. */
export async function readFaults(
  store: ObjectStore,
  record: RunEvidence['record'],
  step: number,
  known = noFaults(record),
): Promise<FaultTotals> {
  const { run } = record;
  const control = await readControl(store, run);
  const owners = await readSequence(store, ownersFolder(run), 'owner');
  let totals = known;
  while (totals.step < step) {
    const updates = await readUpdates(store, run, totals.step + 1, Math.min(step, totals.step + pageSteps));
    for (const update of await projectFaults(store, { record, control, owners }, totals, updates))
      totals = faultsAfter(update);
  }
  return totals;
}

/** Seconds in which the run could make progress: it was neither paused nor blocked, and a workflow drove it. */
export function availableSeconds(figures: FaultFigures): number {
  const figure = (name: string): number => figures[`ft/${name}`] ?? 0;
  return (
    figure('wall_seconds') - figure('paused_seconds') - figure('blocked_seconds') - figure('unowned_seconds')
  );
}

/** Adds `ft/wall_seconds`, and `ft/ettr`: the share of the available time in which the run made progress. */
export function asOf(wallSeconds: number, figures: FaultFigures): FaultFigures {
  const wall = rounded(wallSeconds);
  const figure = (name: string): number => figures[`ft/${name}`] ?? 0;
  const available = availableSeconds({ ...figures, 'ft/wall_seconds': wall });
  const idle = figure('lost_seconds') + figure('waiting_seconds');
  const ettr = available > 0 ? Math.min(1, Math.max(0, 1 - idle / available)) : 1;
  return { ...figures, 'ft/wall_seconds': wall, 'ft/ettr': Math.round(ettr * 10_000) / 10_000 };
}

function rounded(value: number): number {
  return Math.round(value * 1000) / 1000;
}
