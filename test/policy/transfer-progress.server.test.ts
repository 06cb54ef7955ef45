// The transfer of a checkpoint may take longer than an attempt may be silent, so uploads and downloads report progress.
import { stat } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { saveState, uploadCheckpoint } from '../../src/activities/step/save-state.js';
import { run } from '../activities/fixture.js';
import { harness, useSharedHarness } from '../activities/own-harness.js';

useSharedHarness();

it('progress is reported to the heartbeat by an upload, and by the restore on another node', async () => {
  await harness.advance(1);
  const reference = { run, step: 1, owner: 1 };
  const { path } = await harness.attempt('save', () => saveState(harness.node, reference));
  const { size } = await stat(path);

  const uploaded: unknown[] = [];
  await harness.attempt('upload', () => uploadCheckpoint(harness.node, reference), 1, uploaded);
  expect(uploaded).toContainEqual({ uploading: 1, bytes: size });

  const restored: unknown[] = [];
  await harness.attempt('save', () => saveState(harness.secondNode(), reference), 1, restored);
  expect(restored).toContainEqual({ restoring: 1, fetched: size });
});
