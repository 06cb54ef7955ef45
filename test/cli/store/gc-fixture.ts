// A finished run for the tests of collections. It is made once for each test file and copied for each test.
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { saveState, uploadCheckpoint } from '../../../src/activities/step/save-state.js';
import type { EpisodeRecord } from '../../../src/spec/records/episode.js';
import { canonicalText } from '../../../src/store/records/canonical.js';
import { listCheckpoints } from '../../../src/store/runs/checkpoints.js';
import { collect, type CollectionOptions } from '../../../src/store/collection/collection.js';
import { type OpenedStore, readStepEpisodes } from '../../../src/store/runs/episodes.js';
import { checkpointFolder, episodesFolder, foldedEpisodesKey } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { readRun, readState } from '../../../src/store/runs/run-records.js';
import { run } from '../../activities/fixture.js';
import { keysOf } from '../../store/overlaid-store.js';
import { harness, useSharedHarness } from '../../activities/own-harness.js';

export { environments, harness } from '../../activities/own-harness.js';
export { keysOf } from '../../store/overlaid-store.js';

export const last = 6;
export const grpoSteps = [3, 4, 5, 6];
export const [slots, samples] = [2, 2];
export const home = { project: 'tests', model: 'unit', run };

export let scratch: string;
export const episodesBefore = new Map<number, EpisodeRecord[]>();

/** Makes one run for all tests of a file. Each of its steps has a checkpoint. */
export function useFinishedRun(): void {
  useSharedHarness();
  beforeAll(async () => {
    scratch = mkdtempSync(join(tmpdir(), 'longhaul-gc-'));
    for (let step = 1; step <= last; step++) {
      await harness.advance(step);
      await harness.attempt('save', () => saveState(harness.node, { run, step, owner: 1 }));
      await harness.attempt('upload', () => uploadCheckpoint(harness.node, { run, step, owner: 1 }));
    }
    for (const step of grpoSteps) episodesBefore.set(step, await readStepEpisodes(harness.store, run, step));
  });
  afterAll(() => rmSync(scratch, { recursive: true, force: true }));
}

/** A copy of the run's store. Objects keep their times. */
export async function copy(): Promise<{ store: OpenedStore; address: string }> {
  const folder = mkdtempSync(join(scratch, 'copy-'));
  cpSync(join(harness.folder, 'store'), folder, { recursive: true, preserveTimestamps: true });
  return { store: await openStore(`dir:${folder}`), address: `dir:${folder}` };
}

export const keepNewest: CollectionOptions = {
  retention: { keep_last: 1, keep_every: 0, keep_best: 0 },
};
export const collectAll = (store: OpenedStore, during = (): Promise<void> => Promise.resolve()) =>
  collect(store, run, { ...keepNewest, graceMs: 0, by: 'test', wait: during });

/** Expects that the audit finds nothing and that every episode is unchanged. */
export async function expectNothingLost(store: ObjectStore): Promise<void> {
  const audit = await auditRun(store, run);
  expect(audit.violations).toEqual([]);
  expect(audit).toMatchObject({
    steps: last + 1,
    episodes: grpoSteps.length * slots * samples,
    finalState: await readState(harness.store, run, last),
  });
  for (const [step, before] of episodesBefore) {
    const found = await readStepEpisodes(store, run, step);
    expect(found.map((one) => canonicalText(one))).toEqual(before.map((one) => canonicalText(one)));
  }
}

export async function expectCollected(store: OpenedStore): Promise<void> {
  expect(await listCheckpoints(store, await readRun(store, run))).toEqual([last]);
  for (let step = 1; step < last; step++)
    expect(await keysOf(store, checkpointFolder(home, step))).toEqual([]);
  for (const step of grpoSteps) {
    expect(await keysOf(store, episodesFolder(run, step))).toEqual([]);
    expect(await store.head(foldedEpisodesKey(run, step))).not.toBeNull();
  }
}

/** A copy of the store with bound methods, so that it can be spread. */
export function bound(store: OpenedStore): OpenedStore {
  return {
    address: store.address,
    unfolded: store.unfolded,
    get: (key) => store.get(key),
    head: (key) => store.head(key),
    getToFile: (key, path, transfer) => store.getToFile(key, path, transfer),
    stream: (key) => store.stream(key),
    list: (prefix) => store.list(prefix),
    listFolder: (prefix) => store.listFolder(prefix),
    sweep: (olderThanMs) => store.sweep(olderThanMs),
    create: (key, bytes) => store.create(key, bytes),
    createFromFile: (key, path, transfer) => store.createFromFile(key, path, transfer),
    delete: (key) => store.delete(key),
  };
}
