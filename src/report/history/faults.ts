// The faults that a run has survived and their cost: figures ft/* as in `status`, and a table by cause.
import {
  asOf,
  availableSeconds,
  type FaultFigures,
  faultsAfter,
  faultsIn,
  isFault,
  noFaults,
  noticedLaterIn,
  plusFigures,
  withFaults,
} from '../../store/runs/fault-figures.js';
import { isAtState, isOfSweep, readAttemptsIn } from '../../store/runs/step-attempts.js';
import type { AttemptRecord, RecoveryCause } from '../../spec/records/attempt-records.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { percent, timeSpan, whole } from '../format.js';
import { table } from '../html.js';
import type { RunHistory } from './run-history.js';
import { inParallel } from '../../base/in-parallel.js';
import type { ObjectStore } from '../../store/objects/object-store.js';

interface CauseOfLoss {
  cause: RecoveryCause;
  count: number;
  /** Number of failures that were noticed only after some time. */
  noticedLater: number;
  figures: FaultFigures;
}

export interface Faults {
  /** Totals since the run began, up to its newest step and the evaluations after it. */
  figures: FaultFigures;
  causes: CauseOfLoss[];
  /** The history's updates. In the updates of the run's own steps, the metrics also have the fault figures up to that step. */
  updates: UpdateRecord[];
}

export function faultsOf(history: RunHistory, attempts: readonly StepAttempt[]): Faults {
  const { record } = history;
  const steps = new Map<number, AttemptRecord[]>();
  for (const { step, record: attempt } of attempts) {
    const counted = isAtState(attempt.activity) ? step + 1 : step;
    if (counted <= (record.lineage?.step ?? 0)) continue;
    steps.set(counted, [...(steps.get(counted) ?? []), attempt]);
  }
  let totals = noFaults(record);
  const updates = history.updates.map((update) => {
    const { run, step } = update.identity;
    if (run !== record.run) return update;
    const projected = withFaults(update, totals, steps.get(step) ?? [], history);
    totals = faultsAfter(projected);
    return projected;
  });
  const committed = totals.figures;
  // The time available ends with the newest step, so a wait after it is no part of it.
  const { 'ft/waiting_seconds': _, ...after } = faultsIn(steps.get(totals.step + 1) ?? []);
  const found = new Set(
    [...steps.values()]
      .flat()
      .filter(({ activity }) => !isOfSweep(activity))
      .flatMap(({ observed }) => (observed.recoveries ?? []).map(({ cause }) => cause)),
  );
  const causes = [...found].map((cause) => {
    const own = [...steps.values()].map((counted) => counted.map((attempt) => onlyOf(cause, attempt)));
    const figures = own.map(faultsIn).reduce(plusFigures, {});
    const noticedLater = own.map(noticedLaterIn).reduce((sum, one) => sum + one, 0);
    return { cause, count: figures[`ft/restarts/${cause}`] ?? 0, noticedLater, figures };
  });
  return {
    figures: asOf(committed['ft/wall_seconds'] ?? 0, plusFigures(committed, after)),
    updates,
    causes: causes.sort((a, b) => b.count - a.count || a.cause.localeCompare(b.cause)),
  };
}

function onlyOf(cause: RecoveryCause, attempt: AttemptRecord): AttemptRecord {
  const { waited_seconds: _, ...observed } = attempt.observed;
  const recoveries = (observed.recoveries ?? []).filter((recovery) => recovery.cause === cause);
  return { ...attempt, observed: { ...observed, recoveries } };
}

const inWords: Record<RecoveryCause, string> = {
  engine_exit: 'the engine died',
  worker_restart: 'a node worker was killed',
  orchestrator_restart: 'an orchestrator was killed',
  node_lost: 'a node was lost',
  node_drained: 'a node was shut down',
  timeout: 'an attempt timed out',
  store: 'the store failed',
  environment: 'an environment failed',
  temporal: 'Temporal failed',
  diverged: 'a result disagreed with its record',
  error: 'another failure',
  placed: 'the run was placed again, on its node or on another',
  engine_shared: 'another run used the engine in between',
};

const seconds = (value: number | undefined): string =>
  !value ? '–' : value < 0.05 ? 'under 0.1 s' : `${value.toFixed(1)} s`;

/** A sentence about the sums, and below it the table, as HTML. */
export function faultTable(faults: Faults): string {
  const { causes } = faults;
  const sentence = sumSentence(faults);
  if (causes.length === 0) return sentence || '<p class="quiet">No fault is on record.</p>';
  const rows = table(causes, [
    ['what happened', ({ cause }) => inWords[cause]],
    ['times', ({ cause, count }) => (isFault({ cause }) ? whole(count) : '–'), 'figure'],
    ['time lost', (row) => seconds(row.figures['ft/lost_seconds']), 'figure'],
    ['tokens lost', (row) => whole(row.figures['ft/lost_tokens'] ?? 0), 'figure'],
    ['noticed after', (row) => noticed(row), 'figure'],
    ['restore', (row) => seconds(row.figures['ft/restore_seconds']), 'figure'],
    ['steps replayed', (row) => whole(row.figures['ft/replayed_steps'] ?? 0), 'figure'],
    ['replay', (row) => seconds(row.figures['ft/replay_seconds']), 'figure'],
  ]);
  return (
    `${sentence}${rows}<p class="quiet">Time lost: work that had to be repeated, and the time until the work continued; ` +
    `it includes restore and replay.</p>`
  );
}

/** Empty before the run's first step. */
function sumSentence({ figures, causes }: Faults): string {
  const figure = (name: string): number => figures[`ft/${name}`] ?? 0;
  if (figure('wall_seconds') === 0) return '';
  const lostIn = (rows: readonly CauseOfLoss[]): number =>
    rows.reduce((sum, row) => sum + (row.figures['ft/lost_seconds'] ?? 0), 0);
  const costs = (
    [
      ['faults cost', lostIn(causes.filter(isFault))],
      ['moving to a node or sharing an engine cost', lostIn(causes.filter((row) => !isFault(row)))],
      ['waiting for environments, the store or a node cost', figure('waiting_seconds')],
    ] as const
  )
    .filter(([, value]) => value > 0)
    .map(([what, value]) => `${what} ${seconds(value)}`);
  const aside = [
    ['paused', figure('paused_seconds')],
    ['blocked, waiting for a person', figure('blocked_seconds')],
    ['without a workflow', figure('unowned_seconds')],
  ] as const;
  const excluded = aside
    .filter(([, value]) => value > 0)
    .map(([name, value]) => `${timeSpan(value)} ${name}`);
  const share = percent(figures['ft/ettr'] ?? 1);
  const progress = costs.length > 0 && share === percent(1) ? `more than ${percent(0.999)}` : share;
  const noCost = causes.some(isFault)
    ? 'faults are on record, but no time lost to them'
    : 'nothing delayed it';
  return (
    `<p>The run made progress during <strong>${progress}</strong> of the ${timeSpan(availableSeconds(figures))} available to it (ETTR): ` +
    `${costs.length === 0 ? noCost : costs.join(', ')}. ` +
    (excluded.length > 0 ? `Not counted: ${excluded.join(', ')}.` : '') +
    '</p>'
  );
}

function noticed({ count, noticedLater, figures }: CauseOfLoss): string {
  const total = figures['ft/detection_seconds'] ?? 0;
  return count > 0 && total > 0 ? `${(total / noticedLater).toFixed(2)} s` : '–';
}

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
