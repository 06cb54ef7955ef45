// The sweeps that a run's report tells of: those that looked at its states, each with the newest of them.
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { compareSweep } from '../../../src/activities/evaluation/compare-sweep.js';
import { sweepsOfRun } from '../../../src/activities/reports/report-sweeps.js';
import { sweepTable } from '../../../src/report/sweep-table.js';
import type { SelectedCheckpoint, TalliedSample } from '../../../src/spec/records/sweep-record.js';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import { evaluationResultKey, sweepKey, tallyKey } from '../../../src/store/objects/layout.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { digestOf, recordsOfAllKinds } from '../../store/fixtures.js';
import { madeUpSuite } from '../../sweeps/made-up.js';
import '../../support/preloads/threads-from-sources.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const folder = scratchFolder();

const suite = madeUpSuite('held-out', ['tracker'], 60, 4);
const place = (run: string, step: number, digit: string): SelectedCheckpoint => ({
  ...{ run, step, state: digestOf(digit), also: [], needed: true },
});
const checkpoints = [
  place('tiny', 10, 'a'),
  place('tiny', 20, 'b'),
  place('tiny', 30, 'c'),
  place('other', 5, 'd'),
];
/** How many of 4 samples of each task passed. */
const passes: Record<string, number> = { a: 3, b: 1, c: 1, d: 3 };
let store: ObjectStore;

async function recordSweep(name: string, at: string, chosen: SelectedCheckpoint[], baseline: string | null) {
  const { sweep } = recordsOfAllKinds();
  const spec = {
    ...sweep.spec,
    name,
    ...(baseline ? { baseline: { run: 'tiny', step: 10, regression: 0.05 } } : {}),
  };
  const record = {
    ...sweep,
    spec,
    sweep: `tests/${name}`,
    checkpoints: chosen,
    suites: [suite],
    baseline,
    observed: { at },
  };
  await store.create(sweepKey(record.sweep), await encodeRecord('sweep', record));
}

beforeAll(async () => {
  store = await openDirectoryStore(folder);
  const { evaluation } = recordsOfAllKinds();
  for (const { state } of checkpoints) {
    const passed = passes[state[0] ?? ''] ?? 0;
    const samples = suite.record.tasks.map(() =>
      [0, 1, 2, 3].map((sample): TalliedSample => [sample < passed ? 1 : 0, 2, 1, 0]),
    );
    const tally = { schema: 'longhaul.tally/1', state, suite: suite.digest, samples } as const;
    await store.create(tallyKey(state, suite.digest), await encodeRecord('tally', tally));
    const result = { ...evaluation, state, suite: suite.digest };
    await store.create(evaluationResultKey(state, suite.digest), await encodeRecord('evaluation', result));
  }
  await recordSweep('first', '2026-01-02T00:00:00.000Z', checkpoints.slice(0, 1), null);
  await recordSweep('nightly', '2026-01-03T00:00:00.000Z', checkpoints, digestOf('a'));
  await recordSweep(
    'of-the-baseline',
    '2026-01-05T00:00:00.000Z',
    [checkpoints[0]!, checkpoints[3]!],
    digestOf('a'),
  );
  await recordSweep('of-another', '2026-01-04T00:00:00.000Z', checkpoints.slice(3), null);
  await compareSweep({ store }, { sweep: 'tests/nightly', failed: [] });
});

test('are told from the newest on, each with the newest state of the run and its alarm', async () => {
  const { lines, unreadable } = await sweepsOfRun(store, recordsOfAllKinds().run, '../../../');
  expect(unreadable).toEqual([]);
  expect(lines).toEqual([
    {
      ...{ sweep: 'tests/nightly', suite: 'held-out', at: '2026-01-03T00:00:00.000Z' },
      ...{ baseline: 'tiny@10', newest: 'tiny@30', passRates: '75.0 % → 25.0 %' },
      change: expect.stringMatching(/^−50\.0 \[−50\.0, −/) as string,
      tasks: expect.stringMatching(/^0 better, \d+ worse/) as string,
      alarm: { kind: 'regressed', text: expect.stringContaining('all') as string },
      page: expect.stringMatching(/^sweeps\/tests\/nightly\/comparison\.[0-9a-f]{12}\.html$/) as string,
    },
    expect.objectContaining({ sweep: 'tests/first', newest: 'tiny@10', page: null }),
  ]);
});

test('lead to their comparison from a report in the store, and elsewhere to the command that writes it', async () => {
  const { run } = recordsOfAllKinds();
  expect(sweepTable(await sweepsOfRun(store, run, '../../../'))).toMatch(
    /href="\.\.\/\.\.\/\.\.\/sweeps\/tests\/nightly\/comparison\.[0-9a-f]{12}\.html"/,
  );
  const elsewhere = sweepTable(await sweepsOfRun(store, run, null));
  expect(elsewhere).toContain('longhaul sweeps report NAME');
  expect(elsewhere).not.toContain('href');
});

test('that cannot be read hold up no report', async () => {
  await store.create(sweepKey('tests/damaged'), Buffer.from('{'));
  const { lines, unreadable } = await sweepsOfRun(store, recordsOfAllKinds().run, null);
  expect(lines).toHaveLength(2);
  expect(unreadable).toEqual([expect.stringContaining('sweeps/tests/damaged/sweep.json')]);
});

test('are none where none has looked', async () => {
  const other = await openDirectoryStore(join(folder, 'empty'));
  expect(sweepTable(await sweepsOfRun(other, recordsOfAllKinds().run, null))).toBeNull();
});
