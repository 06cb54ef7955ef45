// The garbage collections that a run does itself (R23): the activity on a real store.
import { beforeEach, describe, expect, it } from 'vitest';
import { withRunView } from '../../../src/activities/attempt/run-view.js';
import { collectGarbage } from '../../../src/activities/run/collect-garbage.js';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { listCheckpoints } from '../../../src/store/runs/checkpoints.js';
import { collect, type Collected, planCollection } from '../../../src/store/collection/collection.js';
import {
  collectionsFolder,
  episodesFolder,
  evaluationEpisodesFolder,
} from '../../../src/store/record-keys.js';
import { adoptOrCreate, requireRecord } from '../../../src/store/records/records.js';
import { openRunView } from '../../../src/store/runs/quarantine.js';
import { type OpenedStore, withFoldedEvaluations } from '../../../src/store/runs/episodes.js';
import { readRun } from '../../../src/store/runs/run-records.js';
import {
  copy,
  expectNothingLost,
  harness,
  keysOf,
  last,
  useFinishedRun,
} from '../../cli/store/gc-fixture.js';
import { memoryStore } from '../../workers/follower/memory-store.js';
import { recordsOf, writeAll, writeCheckpoint, writeControl } from '../../workers/follower/written-run.js';
import { activityId, run, tamper } from '../fixture.js';

useFinishedRun();

describe('collectGarbage', () => {
  it('keeps the checkpoints of the default retention, and folds every step and the last evaluation', async () => {
    const evaluated = await harness.attempt(activityId(last, 'evaluate-final'), () =>
      evaluateState(harness.node, { run, step: last, owner: 1, suite: 'final' }),
    );
    const { store } = await copy();
    const collected = () =>
      harness.attempt('gc', () =>
        collectGarbage({ ...harness.orchestrator, store }, { run, owner: 1, step: last }),
      );
    const first = await collected();
    expect(first).toMatchObject({ n: 1, checkpoints: last - 2, steps: 4 });
    expect(first.freed).toBeGreaterThan(0);
    expect(await listCheckpoints(store, await readRun(store, run))).toEqual([last - 1, last]);
    const raw = store.unfolded;
    expect(await raw.listFolder(evaluationEpisodesFolder(evaluated.state, evaluated.suite))).toEqual([]);
    for (let step = 1; step <= last; step++) expect(await keysOf(raw, episodesFolder(run, step))).toEqual([]);
    await expectNothingLost(store);
    expect(await collected()).toEqual({ n: null, checkpoints: 0, steps: 0, freed: 0 });
  });
});

describe('an evaluation without a readable result', () => {
  // Evaluations at steps 4 and 8, where 8 is better, and a checkpoint after every second step.
  let store: OpenedStore;
  let key: string;
  const made = { run: 'tiny', steps: 12, evalInterval: 4 };
  beforeEach(async () => {
    store = withFoldedEvaluations(memoryStore());
    const records = recordsOf(made);
    await writeAll(store, records);
    for (const step of [2, 4, 6, 8, 10, 12]) await writeCheckpoint(store, made.run, step);
    key = records.find((one) => one.step === 4 && one.key.endsWith('/result.json'))?.key ?? '';
  });

  async function collected(): Promise<{ checkpoints: number[]; lines: string[] }> {
    const lines: string[] = [];
    const deps = { ...harness.orchestrator, store, log: (line: string) => lines.push(line) };
    await harness.attempt('gc', () => collectGarbage(deps, { run: made.run, owner: 1, step: made.steps }));
    return { checkpoints: await listCheckpoints(store, await readRun(store, made.run)), lines };
  }

  it('keeps a checkpoint that would be deleted if the result were readable', async () => {
    expect(await collected()).toEqual({ checkpoints: [8, 10, 12], lines: [] });
  });

  it.each<[string, (bytes: Buffer) => string]>([
    ['is damaged', (bytes) => bytes.toString().slice(0, 40)],
    [
      'was written by a newer version',
      (bytes) => bytes.toString().replace(/evaluation\/\d+/, 'evaluation/99'),
    ],
  ])(
    "does not stop the collection if the result %s, keeps the step's checkpoint, and is named",
    async (_, change) => {
      await tamper(store, key, change);
      const { checkpoints, lines } = await collected();
      expect(checkpoints).toEqual([4, 8, 10, 12]);
      expect(lines).toEqual([
        expect.stringMatching(new RegExp(`skipped data of step 4: record ${key} .*longhaul audit`)),
      ]);
    },
  );

  it('is replaced by its new result if the old one was quarantined', async () => {
    const result = await requireRecord(store, key, 'evaluation');
    await tamper(store, key, (bytes) => bytes.toString().slice(0, 40));
    await writeControl(store, made.run, 1, { kind: 'quarantine', key }, 30);
    const retention = { keep_last: 1, keep_every: 0, keep_best: 1 };
    const kept = async () => Object.fromEntries((await planCollection(store, made.run, { retention })).kept);
    expect(await kept()).toEqual({
      ...{ 4: ['the result of its evaluation cannot be read'], 8: ['keep_best'], 12: ['newest'] },
    });
    await adoptOrCreate(await openRunView(store, made.run), key, 'evaluation', { ...result, pass_at_1: 1 });
    expect(await kept()).toEqual({ 4: ['keep_best'], 12: ['newest'] });
  });
});

it('collectGarbage does not compile with a run’s view of the store, in which folded episodes seem to exist', () => {
  // @ts-expect-error A view is not an OpenedStore.
  const inView = () => withRunView(harness.orchestrator, collectGarbage);
  expect(inView).not.toThrow();
});

describe('collections that look only at new steps', () => {
  const collectNew = (
    store: OpenedStore,
    wait = (): Promise<void> => Promise.resolve(),
  ): Promise<Collected> =>
    collect(store, run, {
      retention: { keep_last: 1, keep_every: 0, keep_best: 0 },
      ...{ onlyNewSteps: true, graceMs: 0, by: 'test', wait },
    });

  it.each([1, 2, 4])(
    'leave nothing behind even if %i of them in a row were killed before they deleted anything',
    async (kills) => {
      const { store } = await copy();
      for (let kill = 0; kill < kills; kill++)
        await expect(collectNew(store, () => Promise.reject(new Error('killed')))).rejects.toThrow('killed');
      await collectNew(store);
      for (let step = 1; step <= last; step++)
        expect(await keysOf(store, episodesFolder(run, step))).toEqual([]);
      expect((await collectNew(store)).n).toBeNull();
      expect(await keysOf(store, collectionsFolder(run))).toHaveLength(kills + 1);
      await expectNothingLost(store);
    },
  );
});
