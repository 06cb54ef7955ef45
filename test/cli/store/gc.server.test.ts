// Garbage collection of a real run: nothing that is needed is lost.
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { nativePolicyHolder } from '../../../src/policy/native-state-keeper.js';
import { saveState, uploadCheckpoint } from '../../../src/activities/step/save-state.js';
import { listCheckpoints, writeCheckpoint } from '../../../src/store/runs/checkpoints.js';
import { collect, planCollection } from '../../../src/store/collection/collection.js';
import {
  checkpointFileKey,
  checkpointFolder,
  checkpointManifestKey,
  episodesFolder,
  foldedEpisodesKey,
  refKey,
  runKey,
  updateKey,
} from '../../../src/store/record-keys.js';
import type { OpenedStore } from '../../../src/store/runs/episodes.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { readRun, readState, readUpdate } from '../../../src/store/runs/run-records.js';
import { run, startHarness } from '../../activities/fixture.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { longhaul } from '../../support/command-line.js';
import {
  bound,
  collectAll,
  copy,
  environments,
  expectCollected,
  expectNothingLost,
  grpoSteps,
  harness,
  home,
  keepNewest,
  keysOf,
  last,
  samples,
  scratch,
  slots,
  useFinishedRun,
} from './gc-fixture.js';

useFinishedRun();

describe('a collection', () => {
  test('leaves audit, episodes, plans, batches and updates of a run as they were', async () => {
    const { store } = await copy();
    const before = await keysOf(store);
    expect(await collectAll(store)).toMatchObject({
      n: 1,
      checkpoints: [1, 2, 3, 4, 5],
      episodes: grpoSteps,
      spared: [],
      left: [],
    });
    await expectCollected(store);
    await expectNothingLost(store);
    const gone = new Set(before);
    for (const key of await keysOf(store)) gone.delete(key);
    expect([...gone].filter((key) => !/\/episodes\/|\/batch\.safetensors$|^checkpoints\//.test(key))).toEqual(
      [],
    );
  });

  test('is reported by the audit, which says what is gone and that the rest is enough for a replay', async () => {
    const { store, address } = await copy();
    await collectAll(store);
    expect((await auditRun(store, run)).collected).toEqual({
      records: 1,
      checkpoints: [1, 2, 3, 4, 5],
      manifests: [],
      folded: grpoSteps.length,
    });
    const { output } = await longhaul(['audit', run, '--store', address]);
    expect(output).toMatch(
      /collected +5 checkpoints; the episodes of 4 steps are in one file each \(collections: 1\)/,
    );
    expect(output).toMatch(/every step can still be computed again/);
  });

  test('leaves every state available: a state without a checkpoint is computed from the batches', async () => {
    const { store } = await copy();
    await collectAll(store);
    const folder = mkdtempSync(join(scratch, 'node-'));
    const holder = nativePolicyHolder({
      store,
      engine: harness.engine,
      folder,
      log: () => undefined,
    });
    await harness.engine.restart();
    await holder.withState(run, 4, 'visitor', () => Promise.resolve());
    expect((await harness.engine.held())?.state).toBe(await readState(harness.store, run, 4));
  });

  test('finds nothing to do a second time, and writes no record then', async () => {
    const { store } = await copy();
    await collectAll(store);
    const before = await keysOf(store);
    expect(await collectAll(store)).toMatchObject({ n: null, checkpoints: [], episodes: [] });
    expect(await keysOf(store)).toEqual(before);
  });

  test('keeps every checkpoint of a run without retention, and folds its episodes', async () => {
    const { store } = await copy();
    const done = await collect(store, run, {
      ...keepNewest,
      retention: { keep_last: 1e6, keep_every: 0, keep_best: 0 },
      graceMs: 0,
      by: 'test',
      wait: () => Promise.resolve(),
    });
    expect(done).toMatchObject({ checkpoints: [], episodes: grpoSteps });
    expect(await listCheckpoints(store, await readRun(store, run))).toEqual([1, 2, 3, 4, 5, 6]);
  });

  test('does not change the final state of a run that continues during the collection', async () => {
    const other = await startHarness(environments);
    try {
      await other.advance(4);
      await other.attempt('save', () => saveState(other.node, { run, step: 4, owner: 1 }));
      await other.attempt('upload', () => uploadCheckpoint(other.node, { run, step: 4, owner: 1 }));
      const going = collectAll(other.store, async () => void (await other.advance(5)));
      expect(await going).toMatchObject({ checkpoints: [], episodes: [3, 4] });
      await other.engine.restart();
      await other.advance(last);
      expect(await readState(other.store, run, last)).toBe(await readState(harness.store, run, last));
      expect((await auditRun(other.store, run)).violations).toEqual([]);
    } finally {
      await other.close();
    }
  });

  test('during an audit causes no violation', async () => {
    for (let round = 0; round < 5; round++) {
      const { store } = await copy();
      const [audit] = await Promise.all([auditRun(store, run), collectAll(store)]);
      expect(audit.violations).toEqual([]);
      expect(audit.episodes).toBe(grpoSteps.length * slots * samples);
    }
  });

  test('leaves no broken checkpoint if an uploader writes its manifest only after it', async () => {
    const { store } = await copy();
    const record = await readRun(store, run);
    const manifest = checkpointManifestKey(home, 3);
    const { state, numerics } = (await readUpdate(store, run, 3)).identity;
    const statePath = join(mkdtempSync(join(scratch, 'late-')), 'state.safetensors');
    await store.getToFile(checkpointFileKey(home, 3, 'state.safetensors'), statePath);
    const beforeManifest = async (): Promise<void> => void (await collectAll(store));
    await writeCheckpoint(store, record, { step: 3, state, numerics, statePath, beforeManifest });
    expect(await keysOf(store, checkpointFolder(home, 3))).toEqual([manifest]);
    expect(await listCheckpoints(store, record)).toEqual([last]);
    const audit = await auditRun(store, run);
    expect(audit.violations).toEqual([]);
    expect(audit.collected).toMatchObject({ checkpoints: [1, 2, 3, 4, 5], manifests: [3] });
    expect(await collectAll(store)).toMatchObject({ checkpoints: [3] });
    await expectCollected(store);
    expect((await auditRun(store, run)).collected.manifests).toEqual([]);
  });

  test('deletes the manifest of a checkpoint first, in whatever order the store lists the files', async () => {
    const { store } = await copy();
    const deleted: string[] = [];
    const reversed: OpenedStore = {
      ...bound(store),
      list: async function* (prefix) {
        const found = [];
        for await (const info of store.list(prefix)) found.unshift(info);
        yield* found;
      },
      delete: (key) => {
        deleted.push(key);
        return store.delete(key);
      },
    };
    await collectAll(reversed);
    for (let step = 1; step < last; step++) {
      const files = deleted.filter((key) => key.startsWith(checkpointFolder(home, step)));
      expect(files[0]).toBe(checkpointManifestKey(home, step));
      expect(files).toContain(checkpointFileKey(home, step, 'state.safetensors'));
    }
  });

  test('does not touch a step that is not committed', async () => {
    const { store } = await copy();
    await store.delete(updateKey(run, last));
    await collectAll(store);
    expect(await keysOf(store, episodesFolder(run, last))).toHaveLength(slots * samples);
    expect(await store.head(foldedEpisodesKey(run, last))).toBeNull();
  });
});

describe('a checkpoint that another run needs', () => {
  const reference = { ...recordsOfAllKinds().ref, run, user: 'other', step: 3 };

  test('is kept if its reference existed before the collection', async () => {
    const { store } = await copy();
    await store.create(refKey(run, 'other'), await encodeRecord('ref', reference));
    expect((await collectAll(store)).checkpoints).toEqual([1, 2, 4, 5]);
    expect(await listCheckpoints(store, await readRun(store, run))).toEqual([3, last]);
  });

  test('is spared if its reference is written within the grace period', async () => {
    const { store } = await copy();
    const done = await collectAll(store, async () => {
      await store.create(refKey(run, 'other'), await encodeRecord('ref', reference));
    });
    expect(done).toMatchObject({ checkpoints: [1, 2, 4, 5], spared: [3] });
    await expectNothingLost(store);
  });

  test('is kept for a run that was forked from this one, with or without a reference', async () => {
    const { store } = await copy();
    const lineage = { run, step: 2, state: await readState(store, run, 2) };
    const fork = { ...(await readRun(store, run)), run: 'fork', name: 'fork', lineage };
    await store.create(runKey('fork'), await encodeRecord('run', fork));
    expect((await planCollection(store, run, keepNewest)).kept.get(2)).toEqual(['needed by fork']);
  });

  test('belongs to the parent: a collection of the fork does not list it', async () => {
    const { store } = await copy();
    const lineage = { run, step: 2, state: await readState(store, run, 2) };
    const fork = { ...(await readRun(store, run)), run: 'fork', name: 'fork', lineage };
    await store.create(runKey('fork'), await encodeRecord('run', fork));
    for (const step of [3, 4]) {
      const manifest = await requireRecord(store, checkpointManifestKey(home, step), 'checkpoint');
      const key = checkpointManifestKey({ ...home, run: 'fork' }, step);
      await store.create(key, await encodeRecord('checkpoint', { ...manifest, run: 'fork' }));
    }
    expect(await listCheckpoints(store, fork)).toEqual([1, 2, 3, 4]);
    const { checkpoints, kept } = await planCollection(store, 'fork', keepNewest);
    expect({ checkpoints, kept: [...kept] }).toEqual({ checkpoints: [3], kept: [[4, ['newest']]] });
  });

  test('is not guessed: an unreadable reference stops the collection before it deletes anything', async () => {
    const { store } = await copy();
    await store.create(refKey(run, 'other'), Buffer.from('{"schema":"longhaul.ref/1"'));
    const before = await keysOf(store);
    await expect(collectAll(store)).rejects.toThrow(refKey(run, 'other'));
    expect(await keysOf(store)).toEqual(before);
  });
});
