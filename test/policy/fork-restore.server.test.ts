// A fork shares its parent's steps up to `lineage.step` (R5), so its state is restored from the parent's checkpoint and batches.
import { expect, test } from 'vitest';
import { saveState, uploadCheckpoint } from '../../src/activities/step/save-state.js';
import { runKey } from '../../src/store/record-keys.js';
import { adoptOrCreate } from '../../src/store/records/records.js';
import { readRun, readState } from '../../src/store/runs/run-records.js';
import { run } from '../activities/fixture.js';
import { harness, useSharedHarness } from '../activities/own-harness.js';

useSharedHarness();

test('a fork is restored from its parent’s newest checkpoint before the fork, and the batches after it', async () => {
  for (const step of [1, 2, 4]) {
    await harness.advance(step);
    await harness.attempt('save', () => saveState(harness.node, { run, step, owner: 1 }));
    await harness.attempt('upload', () => uploadCheckpoint(harness.node, { run, step, owner: 1 }));
  }
  const { store } = harness;
  const lineage = { run, step: 3, state: await readState(store, run, 3) };
  const record = { ...(await readRun(store, run)), run: 'fork', name: 'fork', lineage };
  await adoptOrCreate(store, runKey('fork'), 'run', record);
  const { holder } = harness.secondNode();
  await holder.withState('fork', 3, 'visitor', () => Promise.resolve());
  expect((await holder.engine.held())?.state).toBe(lineage.state);
  expect(harness.said.at(-1)).toBe('restored fork step 3: checkpoint 2 and 1 logged updates');
});
