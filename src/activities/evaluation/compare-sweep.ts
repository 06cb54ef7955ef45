// compareSweep: writes the tables, the page and the rows that compare a sweep's evaluations. All of them depend only on the records, so a
// sweep that is killed and started again writes the same bytes.
import { sha256Hex } from '../../base/sha256.js';
import { startThread } from '../../base/worker-thread.js';
import { comparisonKey, sweepResultsKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunViews } from '../../store/runs/quarantine.js';
import { renderComparison } from '../../sweeps/comparison-page.js';
import { comparisonText } from '../../sweeps/comparison-table.js';
import { alarmTexts, gapText } from '../../sweeps/comparison-words.js';
import {
  type compareState,
  emptyComparison,
  type PlayedState,
  type StateComparison,
  type SuiteComparison,
  type SweepComparison,
} from '../../sweeps/comparison.js';
import { readTally } from './played-states.js';
import { resultRow, resultsFile, type ResultRow } from '../../sweeps/results-rows.js';
import type { ComparedSweep, FailedPair } from '../sweep-contracts.js';
import { pairOf, readSweep, type SweepPair, withNewestResult } from '../../store/evaluations/sweeps.js';
import type { WorkContext } from '../../policy/attempt-scope.js';
import type { Place, SweepRecord, SweepSuiteEntry } from '../../spec/records/sweep-record.js';

/** Characters of the table that fit into a workflow's answer. */
const longestTable = 4_000;
const comparisonThread = new URL('../../sweeps/comparison-thread.js', import.meta.url);
/** Half of the activity's time-out, so that this error is reported first. */
const comparisonDeadlineMs = 5 * 60_000;
const more = '… more of it is on the page\n';

interface WrittenComparison extends SweepComparison {
  rows: ResultRow[];
}

export async function compareSweep(
  { store }: { store: ObjectStore },
  { sweep, failed }: { sweep: string; failed: FailedPair[] },
  attempt?: WorkContext,
): Promise<ComparedSweep> {
  const record = await readSweep(store, sweep);
  const comparison = await comparisonOf(store, record, failed, attempt);
  const page = Buffer.from(renderComparison(comparison));
  const report = comparisonKey(sweep, sha256Hex(page));
  await store.create(report, page);
  const rows = Buffer.from(resultsFile(comparison.rows));
  const results = sweepResultsKey(sweep, sha256Hex(rows));
  await store.create(results, rows);
  const alarms = comparison.suites.flatMap((suite) =>
    alarmTexts(suite).map((text) => `${suite.label}: ${text}`),
  );
  const gaps = comparison.suites.flatMap((suite) => {
    const text = gapText(suite);
    return text === null ? [] : [`${suite.label}: ${text}`];
  });
  return { report, results, alarms, gaps, table: beginning(comparisonText(comparison)) };
}

/** The first lines of the text, as many whole lines as fit. */
function beginning(text: string): string {
  if (text.length <= longestTable) return text;
  const cut = text.lastIndexOf('\n', longestTable - more.length);
  return text.slice(0, cut + 1) + more;
}

/** `failed`: pairs that could not be evaluated. The episodes that were played for such a pair still count. */
export async function comparisonOf(
  store: ObjectStore,
  record: SweepRecord,
  failed: readonly FailedPair[] = [],
  attempt?: WorkContext,
): Promise<WrittenComparison> {
  const views = openRunViews(store);
  const rows: ResultRow[] = [];
  const suites: SuiteComparison[] = [];
  const thread = startThread<Parameters<typeof compareState>, StateComparison>(comparisonThread, {
    deadlineMs: comparisonDeadlineMs,
    signal: attempt?.signal,
  });
  try {
    for (const index of record.suites.keys()) suites.push(await comparedSuite(index));
  } finally {
    await thread.end();
  }
  const skipped = [
    ...record.skipped,
    ...failed.map(({ run, step, suite, reason }) => ({
      run,
      step,
      reason: `was not evaluated on ${suite}: ${reason}`,
    })),
  ];
  return { name: record.sweep, project: record.spec.project, suites, skipped, rows };

  /**
   * Keeps two states in memory at a time, the reference and one other. The states are read one after another: reading one state already
   * reads many episodes in parallel.
   */
  async function comparedSuite(index: number): Promise<SuiteComparison> {
    const { checkpoints, baseline, spec } = record;
    const entry = record.suites[index] as SweepSuiteEntry;
    const played = async (checkpoint: number): Promise<PlayedState | null> => {
      const pair = pairOf(record, checkpoint * record.suites.length + index);
      const one = await playedState(store, await views(pair.run), pair, checkpoints[checkpoint]?.also ?? []);
      attempt?.progress({ suite: entry.label, read: checkpoint + 1, of: checkpoints.length });
      return one;
    };
    const against =
      baseline === null ? null : { state: baseline, regression: spec.baseline?.regression ?? 0 };
    const named = checkpoints.findIndex(({ state }) => state === baseline);
    const base = named < 0 ? null : await played(named);
    let reference = base;
    let suite = emptyComparison(entry, reference, against);
    for (const checkpoint of checkpoints.keys()) {
      const state = checkpoint === named ? base : await played(checkpoint);
      if (state === null) continue;
      if (reference === null) {
        reference = state;
        suite = emptyComparison(entry, reference, against);
      }
      // The comparison of one state does not depend on the other states, so they need not be passed.
      const compared = await thread.call([{ ...suite, states: [] }, reference, state]);
      suite.states.push(compared);
      rows.push(resultRow(suite, state, compared));
    }
    return suite;
  }
}

/** Reads through `view`, the view of the state's run. Null if no episode was played. */
async function playedState(
  store: ObjectStore,
  view: ObjectStore,
  pair: SweepPair,
  also: readonly Place[],
): Promise<PlayedState | null> {
  const { run, step, state } = pair;
  const { pair: played, isWhole } = await withNewestResult(view, pair);
  const tasks = await readTally(view, played, isWhole && view === store);
  const isPlayed = tasks.some(({ samples }) => samples.some((sample) => sample !== null));
  return isPlayed ? { run, step, state, ...(also.length > 0 ? { also } : {}), tasks } : null;
}
