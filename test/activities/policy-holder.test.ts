// The engine holds exactly the state that is named, whatever was lost or damaged (R14, R19).
import { existsSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { saveState, uploadCheckpoint } from '../../src/activities/save-state.js';
import type { EnvironmentServer } from '../../src/environments/server/environment-server.js';
import { checkpointHome } from '../../src/store/checkpoints.js';
import { batchKey, checkpointFileKey, checkpointManifestKey, updateKey } from '../../src/store/layout.js';
import { readRun, readState } from '../../src/store/run-records.js';
import { type Harness, run, startEnvironments, startHarness, tamper } from './fixture.js';

let environments: EnvironmentServer;
let harness: Harness;
beforeAll(async () => {
  environments = await startEnvironments();
});
afterAll(() => environments.close());
beforeEach(async () => {
  harness = await startHarness(environments);
});
afterEach(() => harness.close());

const last = 4;

async function upload(...steps: number[]): Promise<void> {
  for (const step of steps) {
    await harness.attempt('upload', () => uploadCheckpoint(harness.node, { run, step, owner: 1 }));
  }
}

/** What the engine holds once it is asked for `step`. */
async function hold(step: number, deps = harness.node): Promise<string | undefined> {
  await deps.holder.withState(run, step, () => Promise.resolve());
  return (await deps.holder.engine.held())?.state;
}

describe('a node that holds nothing', () => {
  it('makes any state from the base model and the logged batches', async () => {
    await harness.advance(last);
    const other = harness.secondNode();
    expect(await hold(last, other)).toBe(await readState(harness.store, run, last));
    expect(harness.said).toContain(`restored ${run} step ${last}: checkpoint 0 and ${last} logged updates`);
  });

  it('takes the newest checkpoint and the batches after it', async () => {
    await harness.advance(2);
    await upload(2);
    await harness.advance(last);
    expect(await hold(last, harness.secondNode())).toBe(await readState(harness.store, run, last));
    expect(harness.said).toContain(`restored ${run} step ${last}: checkpoint 2 and 2 logged updates`);
  });

  it('goes back to an older state as well', async () => {
    await harness.advance(last);
    expect(await hold(1)).toBe(await readState(harness.store, run, 1));
    expect(await hold(last)).toBe(await readState(harness.store, run, last));
  });
});

describe('a damaged checkpoint is passed over for the one before, aloud', () => {
  const passedOver = (step: number, source: 'disk' | 'store'): string | undefined =>
    harness.said.find((line) => line.includes(`step ${step} on ${source}`));

  async function twoCheckpoints(): Promise<void> {
    await harness.advance(1);
    await upload(1);
    await harness.advance(2);
    await upload(2);
    await harness.advance(3);
  }
  const stateFile = async (step: number): Promise<string> =>
    checkpointFileKey(checkpointHome(await readRun(harness.store, run)), step, 'state.safetensors');

  it('on disk, where a byte of it was changed: the store has a good one', async () => {
    await twoCheckpoints();
    const path = harness.node.holder.statePath(run, 2);
    const bytes = readFileSync(path);
    bytes[bytes.length - 5] = (bytes[bytes.length - 5] ?? 0) ^ 0xff;
    writeFileSync(path, bytes);
    await harness.engine.restart();
    expect(await hold(2)).toBe(await readState(harness.store, run, 2));
    expect(passedOver(2, 'disk')).toMatch(/using an older one/);
    expect(passedOver(2, 'store')).toBeUndefined();
  });

  it('on disk, where it was cut off', async () => {
    await twoCheckpoints();
    truncateSync(harness.node.holder.statePath(run, 2), 1000);
    await harness.engine.restart();
    expect(await hold(3)).toBe(await readState(harness.store, run, 3));
    expect(passedOver(2, 'disk')).toMatch(/not usable/);
  });

  it('in the store, where a byte of it was changed', async () => {
    await twoCheckpoints();
    await tamper(harness.store, await stateFile(2), (bytes) => {
      bytes[bytes.length - 5] = (bytes[bytes.length - 5] ?? 0) ^ 0xff;
      return bytes;
    });
    expect(await hold(3, harness.secondNode())).toBe(await readState(harness.store, run, 3));
    expect(passedOver(2, 'store')).toMatch(/sha256 .*using an older one/);
    expect(harness.said.at(-1)).toBe(`restored ${run} step 3: checkpoint 1 and 2 logged updates`);
  });

  it('in the store, where its file is gone', async () => {
    await twoCheckpoints();
    await tamper(harness.store, await stateFile(2), () => null);
    expect(await hold(3, harness.secondNode())).toBe(await readState(harness.store, run, 3));
    expect(passedOver(2, 'store')).toMatch(/it is missing, though its manifest is there/);
  });

  it('in the store, where its upload never ended: it is no checkpoint at all', async () => {
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

  it('all of them: the base model and every batch are left', async () => {
    await twoCheckpoints();
    for (const step of [1, 2]) await tamper(harness.store, await stateFile(step), () => 'nothing');
    expect(await hold(3, harness.secondNode())).toBe(await readState(harness.store, run, 3));
    expect(harness.said.at(-1)).toBe(`restored ${run} step 3: checkpoint 0 and 3 logged updates`);
  });
});

describe('records that were tampered with stop the restore', () => {
  it('a batch: unreadable, naming its key', async () => {
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

  it('a batch that is gone: unreadable, naming its key', async () => {
    await harness.advance(2);
    await tamper(harness.store, batchKey(run, 2), () => null);
    await expect(hold(2, harness.secondNode())).rejects.toMatchObject({
      name: 'UnreadableRecord',
      key: batchKey(run, 2),
    });
  });

  it("a state's digest: diverged after a fresh engine and an older checkpoint, with the command that compares", async () => {
    await harness.advance(2);
    const state = await readState(harness.store, run, 2);
    await tamper(harness.store, updateKey(run, 2), (bytes) =>
      bytes.toString().replaceAll(
        state,
        state.replace(/^./, (digit) => (digit === '0' ? '1' : '0')),
      ),
    );
    await expect(hold(2, harness.secondNode())).rejects.toMatchObject({
      name: 'Diverged',
      message: expect.stringContaining(`longhaul audit ${run} --replay 2..2`) as string,
    });
    expect(harness.said.filter((line) => line.includes('trying once more'))).toHaveLength(2);
  });

  it('a plan: unreadable, it has another digest than its update says', async () => {
    await harness.advance(2);
    await tamper(harness.store, updateKey(run, 2).replace('update', 'plan'), (bytes) =>
      bytes.toString().replace('"weight_decay":0', '"weight_decay":1'),
    );
    await expect(hold(2, harness.secondNode())).rejects.toMatchObject({ name: 'UnreadableRecord' });
  });
});

describe('states on disk', () => {
  it('are kept two a run, the newest', async () => {
    await harness.advance(3);
    for (const step of [1, 2, 3]) {
      await harness.attempt('save', () => saveState(harness.node, { run, step, owner: 1 }));
    }
    expect((await harness.node.holder.localSteps(run)).sort()).toEqual([2, 3]);
  });

  it('are made again where they are missing, so that an upload never lacks its state', async () => {
    await harness.advance(2);
    const { path } = await harness.attempt('save', () => saveState(harness.node, { run, step: 1, owner: 1 }));
    rmSync(path);
    await upload(1);
    expect(existsSync(path)).toBe(true);
  });
});
