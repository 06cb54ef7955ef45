// A report counts the failures of the run's own attempts, by cause, and no failures of its parent's attempts.
import { beforeAll, expect, test } from 'vitest';
import { faultsOf, faultTable, readAttempts, type StepAttempt } from '../../src/report/history/faults.js';
import { readHistory, type RunHistory } from '../../src/report/history/run-history.js';
import type { RecoveryCause } from '../../src/spec/records/attempt-records.js';
import { attemptFolder, runKey, sequenceKey } from '../../src/store/record-keys.js';
import { encodeRecord } from '../../src/store/records/record-codec.js';
import { digestOf, recordsOfAllKinds } from '../store/fixtures.js';
import { recordedRun } from './recorded-run.js';

let history: RunHistory;
beforeAll(async () => {
  history = await readHistory(await recordedRun(), 'tiny');
});

/** An attempt that resumed a step after a failure. */
function after(cause: RecoveryCause, step: number, name = 'collect'): StepAttempt {
  const { attempt } = recordsOfAllKinds();
  const recovery = {
    ...{ cause, event: `${cause} ${step}`, detection_seconds: 0.5, down_seconds: 2 },
    lost: { seconds: 1, tokens: 10, episodes: 1 },
  };
  const activity = `step-${String(step).padStart(6, '0')}/${name}`;
  return {
    step,
    record: { ...attempt, activity, observed: { ...attempt.observed, recoveries: [recovery] } },
  };
}

test('a failure counts once, even if several attempts resumed the step after it', () => {
  const { causes } = faultsOf(history, [
    after('engine_exit', 3),
    after('engine_exit', 3),
    after('engine_exit', 5),
    after('worker_restart', 6),
  ]);
  expect(causes.map(({ cause, count }) => [cause, count])).toEqual([
    ['engine_exit', 2],
    ['worker_restart', 1],
  ]);
});

test('a fork shows none of its parent’s faults', () => {
  const lineage = { run: 'parent', step: 10, state: digestOf('b') };
  const fork = { ...history, record: { ...history.record, lineage } };
  const { causes } = faultsOf(fork, [after('engine_exit', 4), after('worker_restart', 12)]);
  expect(causes.map(({ cause }) => cause)).toEqual(['worker_restart']);
  expect(faultTable(faultsOf(fork, [after('engine_exit', 4)]))).not.toContain('the engine died');
});

test('a fork shows its own faults, but none of its parent’s, at the step that it left from', async () => {
  const store = await recordedRun();
  const lineage = { run: 'tiny', step: 10, state: digestOf('b') };
  const record = { ...history.record, run: 'fork', lineage };
  await store.create(runKey('fork'), await encodeRecord('run', record));
  const keep = async (run: string, activity: string, { step, record: attempt }: StepAttempt) => {
    const key = sequenceKey(attemptFolder(run, step, activity, 'x-2'), 1);
    await store.create(key, await encodeRecord('attempt', attempt));
  };
  await keep('tiny', 'collect', after('engine_exit', 10));
  await keep('tiny', 'evaluate-interval', after('worker_restart', 10, 'evaluate-interval'));
  await keep('fork', 'evaluate-final', after('node_lost', 10, 'evaluate-final'));
  const fork = { ...history, record, updates: history.updates.slice(0, 10) };
  const { causes, figures } = faultsOf(fork, await readAttempts(store, fork));
  expect(causes.map(({ cause, count }) => [cause, count])).toEqual([['node_lost', 1]]);
  expect(figures['ft/lost_seconds']).toBe(3);
});

test('attempts of a sweep that evaluates the run’s states have no row in the table', () => {
  const ofSweep = (['engine_exit', 'engine_shared', 'placed'] as const).map((cause) =>
    after(cause, 5, 'evaluate-sweep-3.1'),
  );
  expect(faultsOf(history, ofSweep).causes).toEqual([]);
  const { causes } = faultsOf(history, [...ofSweep, after('engine_exit', 6)]);
  expect(causes.map(({ cause, count }) => [cause, count])).toEqual([['engine_exit', 1]]);
});

/** The history with its last step committed that long after the run's start. */
function lasting(seconds: number): RunHistory {
  const at = new Date(Date.parse(history.record.observed.started_at) + seconds * 1000).toISOString();
  const last = history.updates.at(-1)!;
  const update = { ...last, observed: { ...last.observed, committed_at: at } };
  return { ...history, updates: [...history.updates.slice(0, -1), update] };
}

const sentenceOf = (from: RunHistory, ...attempts: StepAttempt[]): string =>
  faultTable(faultsOf(from, attempts))
    .split('</p>')[0]!
    .replaceAll(/<[^>]*>/g, '');

test('the sentence names the cost of faults and of moves apart', () => {
  const attempts = [after('engine_exit', 3), after('placed', 4), after('engine_shared', 5)];
  expect(sentenceOf(history, ...attempts)).toContain(
    'faults cost 3.0 s, moving to a node or sharing an engine cost 6.0 s.',
  );
  expect(sentenceOf(history, after('placed', 4))).not.toContain('faults cost');
  expect(sentenceOf(history)).toContain(
    '100.0 % of the 42 min 0 s available to it (ETTR): nothing delayed it.',
  );
});

test('the sentence claims neither full progress nor an undisturbed run if the table has a fault', () => {
  const long = lasting(100_000);
  expect(sentenceOf(long, after('engine_exit', 3))).toContain('more than 99.9 %');
  const fault = after('engine_exit', 3);
  const [recovery] = fault.record.observed.recoveries!;
  const free = { ...recovery!, down_seconds: 0, lost: { ...recovery!.lost, seconds: 0 } };
  fault.record.observed.recoveries = [free];
  expect(sentenceOf(history, fault)).toContain('faults are on record, but no time lost to them');
  fault.record.observed.recoveries = [{ ...free, down_seconds: 0.04 }];
  expect(sentenceOf(history, fault)).toContain('faults cost under 0.1 s');
});

test('the time until a failure was noticed is a mean over those that were noticed later', () => {
  const drained = (step: number, detection_seconds: number): StepAttempt => {
    const { record } = after('node_drained', step);
    const recoveries = (record.observed.recoveries ?? []).map((one) => ({ ...one, detection_seconds }));
    return { step, record: { ...record, observed: { ...record.observed, recoveries } } };
  };
  const html = faultTable(faultsOf(history, [drained(3, 30), drained(5, 10), drained(6, 0)]));
  expect(html).toContain('a node was shut down');
  expect(html).toContain('20.00 s');
});

test('a wait after the newest step is no part of the time available, and does not count in it', () => {
  const last = history.updates.at(-1)!.identity.step;
  const { attempt } = recordsOfAllKinds();
  const waited = (step: number): StepAttempt => ({
    step,
    record: {
      ...attempt,
      activity: `step-${String(step).padStart(6, '0')}/evaluate-final`,
      observed: { ...attempt.observed, waited_seconds: 600 },
    },
  });
  const none = faultsOf(history, []).figures;
  expect(faultsOf(history, [waited(last)]).figures).toEqual(none);
  const before = faultsOf(history, [waited(last - 1)]).figures;
  expect(before).toMatchObject({ 'ft/waiting_seconds': 600 });
  expect(before['ft/ettr']).toBeLessThan(none['ft/ettr']!);
});
