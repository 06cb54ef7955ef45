// A run's own collections (R23): by the activity itself, on a real store.
import { describe, expect, it } from 'vitest';
import { collectGarbage } from '../../../src/activities/run/collect-garbage.js';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { evaluatedSteps } from '../../../src/report/history/best-steps.js';
import { listCheckpoints } from '../../../src/store/runs/checkpoints.js';
import { collect, type Collected } from '../../../src/store/collection/collection.js';
import { unfoldedStore } from '../../../src/store/collection/folded-evaluations.js';
import {
  collectionsFolder,
  episodesFolder,
  evaluationEpisodesFolder,
} from '../../../src/store/objects/layout.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { readRun } from '../../../src/store/runs/run-records.js';
import {
  copy,
  expectNothingLost,
  harness,
  keysOf,
  last,
  useFinishedRun,
} from '../../cli/store/gc-fixture.js';
import { run } from '../fixture.js';

useFinishedRun();

describe('collectGarbage', () => {
  it('keeps the checkpoints of the default retention, and folds each step and the last evaluation', async () => {
    const evaluated = await harness.attempt(`step-${String(last).padStart(6, '0')}/evaluate-final`, () =>
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
    const raw = unfoldedStore(store);
    expect(await raw.listFolder(evaluationEpisodesFolder(evaluated.state, evaluated.suite))).toEqual([]);
    for (let step = 1; step <= last; step++) expect(await keysOf(raw, episodesFolder(run, step))).toEqual([]);
    await expectNothingLost(store);
    expect(await collected()).toEqual({ n: null, checkpoints: 0, steps: 0, freed: 0 });
  });
});

describe('collections that look at new steps alone', () => {
  const collectNew = (
    store: ObjectStore,
    wait = (): Promise<void> => Promise.resolve(),
  ): Promise<Collected> =>
    collect(store, run, {
      retention: { keep_last: 1, keep_every: 0, keep_best: 0 },
      ...evaluatedSteps(store, run),
      ...{ onlyNewSteps: true, graceMs: 0, by: 'test', wait },
    });

  it.each([1, 2, 4])(
    'leave nothing behind where %i in a row were killed before they deleted',
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
