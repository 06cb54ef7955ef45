// A checkpoint may take longer than an attempt may stand still: what moves is progress, up and down.
import { stat } from 'node:fs/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { saveState, uploadCheckpoint } from '../../src/activities/step/save-state.js';
import type { EnvironmentServer } from '../../src/environments/server/environment-server.js';
import { type Harness, run, startEnvironments, startHarness } from '../activities/fixture.js';

let environments: EnvironmentServer;
let harness: Harness;
beforeAll(async () => {
  environments = await startEnvironments();
  harness = await startHarness(environments);
});
afterAll(async () => {
  await harness.close();
  await environments.close();
});

it('is told to the heartbeat by an upload, and by the restore on another node', async () => {
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
