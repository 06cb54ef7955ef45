// The engine holds exactly the requested state, whatever was lost or damaged (R14, R19).
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname } from 'node:path';
import { describe, expect, it } from 'vitest';
import { saveState, uploadCheckpoint } from '../../src/activities/step/save-state.js';
import { stateFileDigest } from '../../src/policy/state-file.js';
import { EngineError } from '../../src/engine/policy-engine.js';
import { checkpointHome } from '../../src/store/runs/checkpoints.js';
import {
  batchKey,
  checkpointFileKey,
  checkpointManifestKey,
  updateKey,
} from '../../src/store/record-keys.js';
import { readRun, readState } from '../../src/store/runs/run-records.js';
import { StoreFull, StoreUnavailable } from '../../src/store/record-errors.js';
import { run, tamper } from '../activities/fixture.js';
import { signedAgain } from '../support/signed-again.js';
import { harness, useHarness } from '../activities/own-harness.js';

useHarness();

const last = 4;

const save = (step: number, deps = harness.node): Promise<{ path: string }> =>
  harness.attempt('save', () => saveState(deps, { run, step, owner: 1 }));
const upload = (step: number, deps = harness.node, last = {}): Promise<{ key: string }> =>
  harness.attempt('upload', () => uploadCheckpoint(deps, { run, step, owner: 1, ...last }));

async function checkpoint(step: number): Promise<void> {
  await save(step);
  await upload(step);
}

const pathOf = async (step: number, deps = harness.node): Promise<string> =>
  deps.holder.keeper.states.path(run, { step, state: await readState(harness.store, run, step) });

/** Requests the state of `step`; returns the state that the engine then holds. */
async function hold(step: number, deps = harness.node): Promise<string | undefined> {
  await deps.holder.withState(run, step, 'visitor', () => Promise.resolve());
  return (await deps.holder.engine.held())?.state;
}

describe('a node that holds nothing', () => {
  it('computes any state from the base model and the logged batches', async () => {
    await harness.advance(last);
    const other = harness.secondNode();
    expect(await hold(last, other)).toBe(await readState(harness.store, run, last));
    expect(harness.said).toContain(`restored ${run} step ${last}: checkpoint 0 and ${last} logged updates`);
  });

  it('loads the newest checkpoint and applies the batches after it', async () => {
    await harness.advance(2);
    await checkpoint(2);
    await harness.advance(last);
    expect(await hold(last, harness.secondNode())).toBe(await readState(harness.store, run, last));
    expect(harness.said).toContain(`restored ${run} step ${last}: checkpoint 2 and 2 logged updates`);
  });

  it('restores an older state too', async () => {
    await harness.advance(last);
    expect(await hold(1)).toBe(await readState(harness.store, run, 1));
    expect(await hold(last)).toBe(await readState(harness.store, run, last));
  });
});

describe('a damaged checkpoint is logged, and the checkpoint before is used', () => {
  const passedOver = (step: number, source: 'disk' | 'store'): string | undefined =>
    harness.said.find((line) => line.includes(`step ${step} on ${source}`));

  async function twoCheckpoints(): Promise<void> {
    await harness.advance(1);
    await checkpoint(1);
    await harness.advance(2);
    await checkpoint(2);
    await harness.advance(3);
  }
  const stateFile = async (step: number): Promise<string> =>
    checkpointFileKey(checkpointHome(await readRun(harness.store, run)), step, 'state.safetensors');

  it('on disk, with a changed byte: the store has an intact copy', async () => {
    await twoCheckpoints();
    const path = await pathOf(2);
    const bytes = readFileSync(path);
    bytes[bytes.length - 5] = (bytes[bytes.length - 5] ?? 0) ^ 0xff;
    writeFileSync(path, bytes);
    await harness.engine.restart();
    expect(await hold(2)).toBe(await readState(harness.store, run, 2));
    expect(passedOver(2, 'disk')).toMatch(/using an older one/);
    expect(passedOver(2, 'store')).toBeUndefined();
  });

  it('on disk, cut off', async () => {
    await twoCheckpoints();
    truncateSync(await pathOf(2), 1000);
    await harness.engine.restart();
    expect(await hold(3)).toBe(await readState(harness.store, run, 3));
    expect(passedOver(2, 'disk')).toMatch(/not usable/);
  });

  it('in the store, with a changed byte', async () => {
    await twoCheckpoints();
    await tamper(harness.store, await stateFile(2), (bytes) => {
      bytes[bytes.length - 5] = (bytes[bytes.length - 5] ?? 0) ^ 0xff;
      return bytes;
    });
    expect(await hold(3, harness.secondNode())).toBe(await readState(harness.store, run, 3));
    expect(passedOver(2, 'store')).toMatch(/sha256 .*using an older one/);
    expect(harness.said.at(-1)).toBe(`restored ${run} step 3: checkpoint 1 and 2 logged updates`);
  });

  it('in the store, with its file missing', async () => {
    await twoCheckpoints();
    await tamper(harness.store, await stateFile(2), () => null);
    expect(await hold(3, harness.secondNode())).toBe(await readState(harness.store, run, 3));
    expect(passedOver(2, 'store')).toMatch(/it is missing, but its manifest exists/);
  });

  it('in the store, with its upload unfinished: it is no checkpoint at all', async () => {
    await twoCheckpoints();
    const home = checkpointHome(await readRun(harness.store, run));
    await tamper(harness.store, checkpointManifestKey(home, 2), () => null);
    expect(await hold(3, harness.secondNode())).toBe(await readState(harness.store, run, 3));
    expect(harness.said.at(-1)).toBe(`restored ${run} step 3: checkpoint 1 and 2 logged updates`);
  });

  it('with an unreadable manifest', async () => {
    await twoCheckpoints();
    const home = checkpointHome(await readRun(harness.store, run));
    await tamper(harness.store, checkpointManifestKey(home, 2), (bytes) => bytes.subarray(0, 40));
    expect(await hold(3, harness.secondNode())).toBe(await readState(harness.store, run, 3));
    expect(passedOver(2, 'store')).toMatch(/manifest\.json is unreadable/);
  });

  it('all checkpoints: the base model and all batches remain', async () => {
    await twoCheckpoints();
    for (const step of [1, 2]) await tamper(harness.store, await stateFile(step), () => 'nothing');
    expect(await hold(3, harness.secondNode())).toBe(await readState(harness.store, run, 3));
    expect(harness.said.at(-1)).toBe(`restored ${run} step 3: checkpoint 0 and 3 logged updates`);
  });
});

describe('an intact checkpoint that cannot be loaded now does not count as damaged', () => {
  it.each([
    ['a store that does not answer', new StoreUnavailable('no answer in 30 s')],
    ['a disk without space', new StoreFull('no space is left')],
  ])('because of %s: the restore fails, and the next attempt loads the checkpoint', async (_, problem) => {
    await harness.advance(1);
    await checkpoint(1);
    const other = harness.secondNode();
    const { store } = harness;
    const getToFile = store.getToFile.bind(store);
    store.getToFile = () => Promise.reject(problem);
    await expect(hold(1, other)).rejects.toBe(problem);
    expect(await other.holder.engine.held()).toBeNull();
    store.getToFile = getToFile;
    expect(await hold(1, other)).toBe(await readState(store, run, 1));
    expect(harness.said.at(-1)).toBe(`restored ${run} step 1: its saved state`);
  });

  it.each(['OutOfMemory', 'Cancelled', 'EngineExited', 'Io', 'Internal', 'BadInput'] as const)(
    'because the engine answers %s: the file is kept',
    async (code) => {
      await harness.advance(1);
      const { path } = await save(1);
      await harness.engine.restart();
      const { engine } = harness.node.holder;
      const problem = new EngineError(code, 'not now');
      const { loadState } = engine;
      engine.loadState = () => Promise.reject(problem);
      await expect(hold(1)).rejects.toBe(problem);
      expect(existsSync(path)).toBe(true);
      engine.loadState = loadState;
      expect(await hold(1)).toBe(await readState(harness.store, run, 1));
      expect(harness.said.at(-1)).toBe(`restored ${run} step 1: its saved state`);
    },
  );
});

describe('a checkpoint that the disk cannot read', () => {
  it('is kept, and loaded by the next attempt', async () => {
    await harness.advance(1);
    const { path } = await save(1);
    await harness.engine.restart();
    const aside = `${path}.aside`;
    renameSync(path, aside);
    // A folder in the file's place cannot be read as a file, not even by root, who ignores file permissions.
    mkdirSync(path);
    await expect(hold(1)).rejects.toMatchObject({ name: 'EngineError', code: 'Io' });
    expect(existsSync(path)).toBe(true);
    rmdirSync(path);
    renameSync(aside, path);
    expect(await hold(1)).toBe(await readState(harness.store, run, 1));
    expect(harness.said.at(-1)).toBe(`restored ${run} step 1: its saved state`);
  });
});

describe('records that were changed stop the restore', () => {
  it('a changed batch: unreadable, and the error names its key', async () => {
    await harness.advance(2);
    await tamper(harness.store, batchKey(run, 1), (bytes) => {
      bytes[bytes.length - 3] = (bytes[bytes.length - 3] ?? 0) ^ 1;
      return bytes;
    });
    await expect(hold(2, harness.secondNode())).rejects.toMatchObject({
      name: 'UnreadableRecord',
      key: batchKey(run, 1),
    });
  });

  it('a missing batch: unreadable, and the error names its key', async () => {
    await harness.advance(2);
    await tamper(harness.store, batchKey(run, 2), () => null);
    await expect(hold(2, harness.secondNode())).rejects.toMatchObject({
      name: 'UnreadableRecord',
      key: batchKey(run, 2),
    });
  });

  it("a state's digest: diverged, after a fresh engine and an older checkpoint; the error has the command to compare", async () => {
    await harness.advance(2);
    const state = await readState(harness.store, run, 2);
    await tamper(harness.store, updateKey(run, 2), (bytes) =>
      signedAgain(
        bytes.toString().replaceAll(
          state,
          state.replace(/^./, (digit) => (digit === '0' ? '1' : '0')),
        ),
      ),
    );
    await expect(hold(2, harness.secondNode())).rejects.toMatchObject({
      name: 'Diverged',
      message: expect.stringContaining(`longhaul audit ${run} --replay 2..2`) as string,
    });
    expect(harness.said.filter((line) => line.includes('trying once more'))).toHaveLength(2);
  });

  it('a plan: unreadable, because the update names another digest', async () => {
    await harness.advance(2);
    await tamper(harness.store, updateKey(run, 2).replace('update', 'plan'), (bytes) =>
      bytes.toString().replace('"weight_decay":0', '"weight_decay":1'),
    );
    await expect(hold(2, harness.secondNode())).rejects.toMatchObject({ name: 'UnreadableRecord' });
  });
});

describe('a long restore', () => {
  it('reports progress, and stops when its attempt must stop', async () => {
    await harness.advance(last);
    const other = harness.secondNode();
    const stop = new AbortController();
    const said: unknown[] = [];
    const progress = (details?: unknown): void => {
      if (!('shards' in (details as object))) said.push(details);
      if ((details as { replayed?: number }).replayed === 2) stop.abort(new Error('the run was cancelled'));
    };
    const attempt = { signal: stop.signal, progress };
    const restoring = other.holder.withState(run, last, 'visitor', () => Promise.resolve('held'), attempt);
    await expect(restoring).rejects.toThrow('the run was cancelled');
    expect(said).toEqual([0, 1, 2].map((replayed) => ({ restoring: last, replayed, of: last })));
    expect((await other.holder.engine.held())?.state).toBe(await readState(harness.store, run, 2));
  });

  it('does not hold up a waiting attempt that must stop', async () => {
    await harness.advance(1);
    const { holder } = harness.node;
    const stop = new AbortController();
    const attempt = { signal: stop.signal, progress: () => undefined };
    await holder.alone(run, 1, 'none', async () => {
      const waiting = [
        holder.withState(run, 1, 'visitor', () => Promise.resolve(), attempt),
        holder.alone(run, 1, 'none', () => Promise.resolve(), attempt),
      ];
      stop.abort(new Error('the run was cancelled'));
      // Check all at once: a rejection without a handler would count as unhandled.
      await Promise.all(waiting.map((wait) => expect(wait).rejects.toThrow('the run was cancelled')));
    });
  });

  it('is done once for all attempts that wait for it', async () => {
    await harness.advance(1);
    const other = harness.secondNode();
    await Promise.all([1, 2, 3].map(() => hold(1, other)));
    expect(harness.said.filter((line) => line.startsWith('restored'))).toHaveLength(1);
  });
});

describe('states on disk', () => {
  it('are the newest two of a run', async () => {
    await harness.advance(3);
    for (const step of [1, 2, 3]) await save(step);
    expect((await harness.node.holder.keeper.states.list(run)).map(({ step }) => step)).toEqual([3, 2]);
  });

  it('replace leftovers of killed writers, but not the files of living writers', async () => {
    await harness.advance(last);
    await save(1);
    const saved = await pathOf(1);
    const dead = spawnSync(process.execPath, ['--version']).pid;
    const leave = (name: string, minutesAgo: number): string => {
      const path = `${saved}.${name}`;
      writeFileSync(path, 'half a state');
      const then = Date.now() / 1000 - 60 * minutesAgo;
      utimesSync(path, then, then);
      return path;
    };
    const left = [leave(`tmp-${dead}`, 0), leave(`tmp-${process.pid}`, 60), leave('0a1b2c3d4e5f.part', 60)];
    const underWay = [leave(`tmp-${process.ppid}`, 1), leave('5f4e3d2c1b0a.part', 1)];
    await save(2);
    expect(left.filter((path) => existsSync(path))).toEqual([]);
    expect([...underWay, saved, await pathOf(2)].filter((path) => !existsSync(path))).toEqual([]);
  });

  it('fetched from the store replace leftovers too', async () => {
    await harness.advance(1);
    await checkpoint(1);
    const other = harness.secondNode();
    const path = (await pathOf(1, other)).replace('/states/', '/fetched-states/');
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(`${path}.0a1b2c3d4e5f.part`, 'half a state');
    utimesSync(`${path}.0a1b2c3d4e5f.part`, 0, 0);
    await other.holder.withState(run, 1, 'visitor', () => Promise.resolve());
    expect(readdirSync(dirname(path))).toEqual([basename(path)]);
  });

  it('have the digest in their file name', async () => {
    await harness.advance(2);
    const { path } = await save(2);
    expect(await stateFileDigest(path)).toBe(await readState(harness.store, run, 2));
  });

  it('of another store, left in this folder, are neither loaded, uploaded nor kept', async () => {
    await harness.advance(2);
    const { holder } = harness.node;
    const { path } = await save(1);
    const foreign = [2, 9].map((step) => holder.keeper.states.path(run, { step, state: 'f'.repeat(64) }));
    for (const copy of foreign) copyFileSync(path, copy);
    await harness.engine.restart();
    expect(await hold(2)).toBe(await readState(harness.store, run, 2));
    await checkpoint(2);
    expect(await readFileOf(2)).toEqual(readFileSync(await pathOf(2)));
    expect(foreign.filter(existsSync)).toEqual([]);
    expect((await holder.keeper.states.list(run)).map(({ step }) => step)).toEqual([2, 1]);
  });
});

describe('an upload whose state is not on the disk is given up: the engine does not restore an old state for it (R17)', () => {
  const givenUp = { type: 'CheckpointGivenUp', nonRetryable: true };

  it('on a node that never saved the state', async () => {
    await harness.advance(2);
    await save(1);
    const other = harness.secondNode();
    await hold(2, other);
    const restored = harness.said.length;
    await expect(upload(1, other)).rejects.toMatchObject(givenUp);
    expect(harness.said.length).toBe(restored);
    expect((await other.holder.engine.held())?.state).toBe(await readState(harness.store, run, 2));
  });

  it('if the state’s bytes are damaged; nothing of the state reaches the store', async () => {
    await harness.advance(2);
    const { path } = await save(2);
    const bytes = readFileSync(path);
    bytes[bytes.length - 5] = (bytes[bytes.length - 5] ?? 0) ^ 0xff;
    writeFileSync(path, bytes);
    await expect(upload(2)).rejects.toMatchObject(givenUp);
    expect(await readFileOf(2)).toBeNull();
    await checkpoint(2);
    expect(await readFileOf(2)).toEqual(readFileSync(path));
  });

  it('except for the run’s last state, which any node restores', async () => {
    await harness.advance(2);
    const other = harness.secondNode();
    await upload(2, other, { restore: true });
    expect(await readFileOf(2)).toEqual(readFileSync(await pathOf(2, other)));
  });

  it('if the state’s file was cut off', async () => {
    await harness.advance(2);
    const { path } = await save(2);
    truncateSync(path, 1000);
    await expect(upload(2)).rejects.toMatchObject(givenUp);
  });
});

async function readFileOf(step: number): Promise<Uint8Array | null> {
  const home = checkpointHome(await readRun(harness.store, run));
  return harness.store.get(checkpointFileKey(home, step, 'state.safetensors'));
}
