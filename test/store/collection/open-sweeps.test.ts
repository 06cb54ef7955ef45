// A collection keeps the checkpoints that an open sweep has not evaluated yet (R23).
import { beforeEach, describe, expect, test } from 'vitest';
import { type CollectionOptions, collect, planCollection } from '../../../src/store/collection/collection.js';
import { openStore } from '../../../src/store/open-store.js';
import { comparisonKey, evaluationResultKey, sweepKey } from '../../../src/store/record-keys.js';
import type { OpenedStore } from '../../../src/store/runs/episodes.js';
import { openSweepNeeds } from '../../../src/store/collection/open-sweeps.js';
import { adoptOrCreate } from '../../../src/store/records/records.js';
import { digestOf, recordsOfAllKinds } from '../fixtures.js';
import { makeRunIn, stateOf } from '../made-runs.js';
import { ownFolder } from '../../support/scratch-folder.js';

const sweep = 'longhaul/nightly';
const suite = digestOf('d');
const keepNewest: CollectionOptions = {
  retention: { keep_last: 1, keep_every: 0, keep_best: 0 },
};

let folder: string;
let store: OpenedStore;
beforeEach(async () => {
  folder = ownFolder();
  store = await openStore(folder);
  await makeRunIn(store, 'tiny', { steps: 6, checkpoints: [1, 2, 3, 4, 5, 6] });
});

async function planSweep(steps: readonly number[], at = new Date(), run = 'tiny'): Promise<void> {
  const checkpoints = steps.map((step) => ({
    ...{ run, step, state: stateOf('tiny', step), also: [], needed: true },
  }));
  const record = { ...recordsOfAllKinds().sweep, sweep, checkpoints, observed: { at: at.toISOString() } };
  await adoptOrCreate(store, sweepKey(sweep), 'sweep', record);
}

async function evaluated(step: number): Promise<void> {
  const state = stateOf('tiny', step);
  const result = { ...recordsOfAllKinds().evaluation, state, suite };
  await adoptOrCreate(store, evaluationResultKey(state, suite), 'evaluation', result);
}

const deleted = async (): Promise<number[]> => (await planCollection(store, 'tiny', keepNewest)).checkpoints;

describe('a checkpoint that a sweep has not evaluated yet', () => {
  test('stays, with the sweep as the reason, until the sweep has its result', async () => {
    await planSweep([2, 4]);
    expect(await deleted()).toEqual([1, 3, 5]);
    expect((await planCollection(store, 'tiny', keepNewest)).kept.get(2)).toEqual([
      `needed by sweep ${sweep}`,
    ]);
    await evaluated(2);
    expect(await deleted()).toEqual([1, 2, 3, 5]);
  });

  test('is deleted once the sweep has its comparison, even if the checkpoint was never evaluated', async () => {
    await planSweep([2]);
    await store.create(comparisonKey(sweep, digestOf('c')), Buffer.from('<p>'));
    expect(await deleted()).toEqual([1, 2, 3, 4, 5]);
  });

  test('is spared if the sweep was planned during the grace period', async () => {
    const done = await collect(store, 'tiny', {
      ...keepNewest,
      graceMs: 0,
      by: 'test',
      wait: () => planSweep([3]),
    });
    expect(done).toMatchObject({ checkpoints: [1, 2, 4, 5], spared: [3] });
  });

  test('stays in the parent’s folder if a fork shares the step with its parent', async () => {
    const lineage = { run: 'tiny', step: 4, state: stateOf('tiny', 4) };
    await makeRunIn(store, 'fork', { steps: 5, checkpoints: [5], lineage });
    await planSweep([3], new Date(), 'fork');
    expect(await openSweepNeeds(store, 'tiny')).toEqual([{ step: 3, by: `sweep ${sweep}` }]);
    expect(await openSweepNeeds(store, 'fork')).toEqual([]);
  });

  test('is deleted a month after the sweep was planned: the sweep was cancelled and not started again', async () => {
    await planSweep([2], new Date(Date.now() - 31 * 86_400_000));
    expect(await deleted()).toEqual([1, 2, 3, 4, 5]);
  });

  test('stays if a sweep cannot be read: then nothing is deleted', async () => {
    await store.create(sweepKey(sweep), Buffer.from('{'));
    await expect(deleted()).rejects.toThrow(sweepKey(sweep));
  });
});
