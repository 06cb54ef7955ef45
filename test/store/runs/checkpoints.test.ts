// Checkpoints (R31) are complete or do not exist, and have the bytes that the manifest names. A fork shares its parent's checkpoints up to
// the step where it begins.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import type { RunRecord } from '../../../src/spec/records/run-records.js';
import { sha256File } from '../../../src/base/sha256.js';
import {
  checkpointExists,
  checkpointHome,
  fetchCheckpoint,
  listCheckpoints,
  verifyCheckpoint,
  writeCheckpoint,
} from '../../../src/store/runs/checkpoints.js';
import { openDirectoryStore } from '../../../src/store/objects/directory-store.js';
import { checkpointFileKey, checkpointManifestKey, runKey } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { adoptOrCreate } from '../../../src/store/records/records.js';
import { atOnceIn, bytesOf } from '../objects/conformance.js';
import { digestOf, recordsOfAllKinds } from '../fixtures.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const numerics = { backend: 'cpu', version: 1 } as const;
const stateOf = (step: number) => digestOf((step % 16).toString(16));

const scratch = scratchFolder();
let store: ObjectStore;
let count = 0;
beforeEach(async () => {
  store = await openDirectoryStore(join(scratch, `store-${++count}`));
});

async function writeRun(run: string, lineage: RunRecord['lineage'] = null): Promise<RunRecord> {
  const record = { ...recordsOfAllKinds().run, run, lineage };
  await adoptOrCreate(store, runKey(run), 'run', record);
  return record;
}

async function save(
  record: RunRecord,
  step: number,
  text = `state ${step}`,
  beforeManifest = () => Promise.resolve(),
): Promise<void> {
  const statePath = join(scratch, `state-${count}-${step}`);
  await writeFile(statePath, text);
  await writeCheckpoint(store, record, { step, state: stateOf(step), numerics, statePath, beforeManifest });
}
const fileOf = (record: RunRecord, step: number) =>
  checkpointFileKey(checkpointHome(record), step, 'state.safetensors');

describe('a checkpoint', () => {
  test('is downloaded as it was saved; saving it again changes nothing, and saving other bytes throws Diverged', async () => {
    const record = await writeRun('tiny');
    await save(record, 4);
    await save(record, 4);
    await expect(save(record, 4, 'another state')).rejects.toMatchObject({ name: 'Diverged' });
    const path = join(scratch, `fetched-${count}`);
    await fetchCheckpoint(store, record, 4, path);
    expect((await sha256File(path)).size).toBe('state 4'.length);
    expect(await listCheckpoints(store, record)).toEqual([4]);
  });

  test('reports the bytes moved during its upload, its comparison with stored bytes, and its download', async () => {
    const record = await writeRun('tiny');
    const statePath = join(scratch, `state-${count}`);
    await writeFile(statePath, Buffer.alloc(20 << 20));
    const told: number[] = [];
    const transfer = { onProgress: (bytes: number) => told.push(bytes) };
    const upload = () =>
      writeCheckpoint(store, record, { step: 1, state: stateOf(1), numerics, statePath, ...transfer });
    const download = () => fetchCheckpoint(store, record, 1, join(scratch, `told-${count}`), transfer);
    for (const move of [upload, upload, download]) {
      await move();
      expect(told.splice(0)).toEqual([8 << 20, 16 << 20, 20 << 20]);
    }
  });

  const dies = () => Promise.reject(new Error('killed here'));

  test('gets its manifest last', async () => {
    const record = await writeRun('tiny');
    await expect(save(record, 1, 'state 1', dies)).rejects.toThrow('killed here');
    expect(await listCheckpoints(store, record)).toEqual([]);
    expect(await checkpointExists(store, record, 1)).toBe(false);
    expect(await store.head(fileOf(record, 1))).not.toBeNull();
  });

  test('without a manifest is completed by another writer with the same bytes', async () => {
    const record = await writeRun('tiny');
    await expect(save(record, 1, 'state 1', dies)).rejects.toThrow('killed here');
    await save(record, 1);
    await verifyCheckpoint(store, record, 1);
  });

  test.each(['other 1', 'a longer state 1', 'state'])(
    'without a manifest gets no manifest from a writer with other bytes (%j)',
    async (text) => {
      const record = await writeRun('tiny');
      await expect(save(record, 1, 'state 1', dies)).rejects.toThrow('killed here');
      await expect(save(record, 1, text)).rejects.toMatchObject({
        name: 'Diverged',
        message: expect.stringMatching(/stored file has sha256 [0-9a-f]{64}, but the file on disk/) as string,
        evidence: { key: fileOf(record, 1), stored: { size: 7 }, computed: { size: text.length } },
      });
      expect(await listCheckpoints(store, record)).toEqual([]);
    },
  );

  test('with changed bytes is not downloaded', async () => {
    const record = await writeRun('tiny');
    await save(record, 2);
    await store.delete(fileOf(record, 2));
    await store.create(fileOf(record, 2), bytesOf('stale 2'));
    const path = join(scratch, `never-${count}`);
    await expect(fetchCheckpoint(store, record, 2, path)).rejects.toMatchObject({
      name: 'CorruptCheckpoint',
    });
    await expect(sha256File(path)).rejects.toThrow(/ENOENT/);
    await expect(verifyCheckpoint(store, record, 2)).rejects.toThrow(/sha256/);
  });
});

test('a long run’s checkpoints are looked up a few at a time', async () => {
  const record = await writeRun('tiny');
  for (let step = 1; step <= 100; step++) {
    await store.create(checkpointManifestKey(checkpointHome(record), step), bytesOf('{}'));
    await store.create(fileOf(record, step), bytesOf('state'));
  }
  const { watched, most } = atOnceIn(store);
  expect(await listCheckpoints(watched, record)).toHaveLength(100);
  expect(most()).toBeGreaterThan(1);
  expect(most()).toBeLessThanOrEqual(32);
});

describe('a fork', () => {
  async function family(): Promise<{ parent: RunRecord; fork: RunRecord }> {
    const parent = await writeRun('tiny');
    for (const step of [1, 2, 4]) await save(parent, step);
    const fork = await writeRun('fork', { run: 'tiny', step: 2, state: stateOf(2) });
    await save(fork, 3, 'the fork’s own');
    return { parent, fork };
  }

  test('has its parent’s checkpoints up to the step where it begins, and its own after that (R5)', async () => {
    const { parent, fork } = await family();
    expect(await listCheckpoints(store, fork)).toEqual([1, 2, 3]);
    expect(await listCheckpoints(store, parent)).toEqual([1, 2, 4]);
    expect([await checkpointExists(store, fork, 2), await checkpointExists(store, fork, 4)]).toEqual([
      true,
      false,
    ]);
    const path = join(scratch, `forked-${count}`);
    expect(await fetchCheckpoint(store, fork, 2, path)).toMatchObject({ run: 'tiny', step: 2 });
    expect(await verifyCheckpoint(store, fork, 3)).toMatchObject({ run: 'fork', step: 3 });
  });

  test('of a fork, if it begins at a step that all three runs share, has only the shared checkpoints up to there', async () => {
    await family();
    const second = await writeRun('second', { run: 'fork', step: 1, state: stateOf(1) });
    expect(await listCheckpoints(store, second)).toEqual([1]);
  });

  test('saves a shared step under its parent’s key, so that the checkpoint is stored only once', async () => {
    const { parent, fork } = await family();
    await store.delete(checkpointManifestKey(checkpointHome(parent), 2));
    await save(fork, 2);
    expect(await verifyCheckpoint(store, parent, 2)).toMatchObject({ run: 'tiny', step: 2 });
  });
});
