// The sweeps that evaluated a run's states, for its report: for each, the run's newest state against the sweep's reference.
import type { SweepLine, SweepsOfRun } from '../../report/sweep-table.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { SelectedCheckpoint, SweepRecord } from '../../spec/records/sweep-record.js';
import { comparisonPage } from '../../store/evaluations/comparisons.js';
import { inParallel } from '../../base/in-parallel.js';
import { checkName, sweepsOfProject } from '../../store/objects/layout.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { NewerSchema, OlderSchema, UnreadableRecord } from '../../store/objects/store-errors.js';
import { readSweepIfAny } from '../../store/evaluations/sweeps.js';
import { placeText } from '../../sweeps/checkpoint-selection.js';
import { alarmWords, changesText, differenceText, shareText } from '../../sweeps/comparison-words.js';
import type { StateComparison, SuiteComparison } from '../../sweeps/comparison.js';
import { comparisonOf } from '../evaluation/compare-sweep.js';

/** The newest ones: a nightly sweep evaluates a run of weeks many times. */
const sweepsShown = 5;

/** Throws `StoreUnavailable`; sweeps that cannot be read are named. */
export async function sweepsOfRun(
  store: ObjectStore,
  { run, spec }: RunRecord,
  toRoot: string | null,
): Promise<SweepsOfRun> {
  const unreadable: string[] = [];
  const orSay = async <Result>(read: () => Promise<Result>): Promise<Result | null> => {
    try {
      return await read();
    } catch (error) {
      if (![UnreadableRecord, NewerSchema, OlderSchema].some((kind) => error instanceof kind)) throw error;
      unreadable.push((error as Error).message);
      return null;
    }
  };
  const project = checkName(spec.project, 'project');
  const names = (await store.listFolder(sweepsOfProject(project))).filter((name) => name.endsWith('/'));
  const records = await inParallel(names, (name) =>
    orSay(() => readSweepIfAny(store, `${project}/${name.slice(0, -1)}`)),
  );
  const own = records
    .filter((record) => record !== null)
    .flatMap((record) => {
      const newest = newestOf(record, run);
      // A nightly sweep has its baseline each night: if only that is the run's, the sweep is left out.
      return newest && newest.state !== record.baseline ? [{ record, newest }] : [];
    })
    .sort((a, b) => (a.record.observed.at < b.record.observed.at ? 1 : -1))
    .slice(0, sweepsShown);
  const lines: SweepLine[] = [];
  for (const { record, newest } of own)
    lines.push(...((await orSay(() => linesOf(store, record, newest))) ?? []));
  return { lines, unreadable, toRoot };
}

/** The run's newest state in the sweep; null if it has none. */
function newestOf({ checkpoints }: SweepRecord, run: string): SelectedCheckpoint | null {
  const steps = checkpoints.flatMap((checkpoint) =>
    [checkpoint, ...checkpoint.also].flatMap((place) =>
      place.run === run ? [{ checkpoint, step: place.step }] : [],
    ),
  );
  return steps.sort((a, b) => b.step - a.step)[0]?.checkpoint ?? null;
}

async function linesOf(
  store: ObjectStore,
  record: SweepRecord,
  newest: SelectedCheckpoint,
): Promise<SweepLine[]> {
  // The others are read for the sweep's own page.
  const first = record.checkpoints[0];
  const reference = record.checkpoints.find(({ state }) => state === (record.baseline ?? first?.state));
  const checkpoints = [...(reference ? [reference] : []), ...(reference === newest ? [] : [newest])];
  const { suites } = await comparisonOf(store, { ...record, checkpoints });
  const page = await comparisonPage(store, record.sweep);
  return suites.flatMap((suite) => {
    const after = suite.states.find(({ state }) => state === newest.state);
    return after ? [{ ...lineOf(record, suite, after), page }] : [];
  });
}

function lineOf(
  record: SweepRecord,
  suite: SuiteComparison,
  newest: StateComparison,
): Omit<SweepLine, 'page'> {
  const before = suite.states.find(({ state }) => state === suite.reference?.state);
  const { versus } = newest;
  const rates = versus === null || !before ? [newest] : [before, newest];
  return {
    ...{ sweep: record.sweep, suite: suite.label, at: record.observed.at },
    baseline: suite.reference ? placeText(suite.reference) : '–',
    newest: placeText(newest),
    passRates: rates.map(({ all }) => shareText(all.pass_at_1)).join(' → '),
    change: versus === null ? 'is what others are compared with' : differenceText(versus.all),
    tasks: versus === null ? '–' : changesText(versus.tasks),
    alarm: alarmOf(suite, newest),
  };
}

function alarmOf({ regression }: SuiteComparison, { versus }: StateComparison): SweepLine['alarm'] {
  if (regression === null) return { kind: 'none', text: 'no baseline is named' };
  const alarms = versus?.alarms ?? [];
  for (const kind of ['regressed', 'suspected'] as const) {
    const scopes = alarms.filter(({ level }) => level === kind).map(({ scope }) => scope);
    if (scopes.length > 0) return { kind, text: `${alarmWords[kind]}: ${scopes.join(', ')}` };
  }
  return { kind: 'none', text: 'none' };
}
