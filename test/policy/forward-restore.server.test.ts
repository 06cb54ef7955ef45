// A node whose engine holds an earlier state of the run continues from that state: it loads nothing and applies only the batches logged
// since (R14).
import { beforeEach, describe, expect, it } from 'vitest';
import { saveState, uploadCheckpoint } from '../../src/activities/step/save-state.js';
import { runKey } from '../../src/store/record-keys.js';
import { adoptOrCreate } from '../../src/store/records/records.js';
import { readRun, readState } from '../../src/store/runs/run-records.js';
import { type NativeNode, run } from '../activities/fixture.js';
import { harness, useHarness } from '../activities/own-harness.js';

useHarness();
beforeEach(async () => {
  const [phase] = harness.spec['warm_start'] as object[];
  await harness.open({ ...harness.spec, warm_start: [{ ...phase, updates: learning }] });
});

/** Number of supervised steps; each changes the state. */
const learning = 4;

/** Returns the loads and updates of the node's engine, in order. Its first `wrong` updates give a wrong state. */
function watched(deps: NativeNode, wrong = 0): string[] {
  const { engine } = deps.holder;
  const { update, restart, loadRandom, loadState } = engine;
  const did: string[] = [];
  engine.loadState = (state) => {
    did.push(`load ${Number(/(\d{6})\.[0-9a-f]{64}/.exec(state.path)?.[1])}`);
    return loadState(state);
  };
  engine.loadRandom = (model) => {
    did.push('load base');
    return loadRandom(model);
  };
  engine.restart = () => {
    did.push('restart');
    return restart();
  };
  engine.update = async (...args) => {
    const result = await update(...args);
    did.push('update');
    return wrong-- > 0 ? { ...result, state: 'f'.repeat(64) } : result;
  };
  return did;
}

async function hold({ holder }: NativeNode, step: number, name = run): Promise<void> {
  await holder.withState(name, step, 'visitor', () => Promise.resolve());
  expect((await holder.engine.held())?.state).toBe(await readState(harness.store, name, step));
}

async function checkpoint(step: number): Promise<void> {
  await harness.attempt('save', () => saveState(harness.node, { run, step, owner: 1 }));
  await harness.attempt('upload', () => uploadCheckpoint(harness.node, { run, step, owner: 1 }));
}

/** Another node that holds the state after `step`, like a node that helped with the next rollouts. */
async function nodeAt(step: number): Promise<NativeNode> {
  await harness.advance(step);
  const other = harness.secondNode();
  await hold(other, step);
  return other;
}

describe('a node that holds an earlier state of the run', () => {
  it('applies the one missed batch in each step', async () => {
    const helper = await nodeAt(1);
    const did = watched(helper);
    for (const step of [2, 3, 4]) {
      await harness.advance(step);
      await hold(helper, step);
    }
    expect(did).toEqual(['update', 'update', 'update']);
    expect(harness.said.at(-1)).toBe(`restored ${run} step 4: the held state of step 3 and 1 logged updates`);
  });

  it('applies all missed batches if no checkpoint is newer', async () => {
    const helper = await nodeAt(2);
    await checkpoint(1);
    await harness.advance(learning);
    const did = watched(helper);
    await hold(helper, learning);
    expect(did).toEqual(['update', 'update']);
  });

  it('loads a checkpoint that is newer', async () => {
    const helper = await nodeAt(1);
    await harness.advance(3);
    await checkpoint(3);
    await harness.advance(learning);
    const did = watched(helper);
    await hold(helper, learning);
    expect(did).toEqual(['load 3', 'update']);
  });

  it('continues from the place where an earlier restore was cut off', async () => {
    const helper = await nodeAt(1);
    await harness.advance(learning);
    const did = watched(helper);
    const stop = new AbortController();
    const progress = (details?: unknown): void => {
      if ((details as { replayed?: number }).replayed === 1) stop.abort(new Error('cut off'));
    };
    const cut = helper.holder.withState(run, learning, 'visitor', () => Promise.resolve(), {
      signal: stop.signal,
      progress,
    });
    await expect(cut).rejects.toThrow('cut off');
    await hold(helper, learning);
    expect(did).toEqual(['update', 'update', 'update']);
  });

  it('can take over the update without loading a state', async () => {
    const helper = await nodeAt(2);
    await harness.advance(3);
    const did = watched(helper);
    await helper.holder.alone(run, 3, 'none', () => Promise.resolve());
    expect(did).toEqual(['update']);
  });

  it('needs a checkpoint to restore an older state, because batches only lead forward', async () => {
    await harness.advance(1);
    await checkpoint(1);
    const helper = await nodeAt(3);
    const did = watched(helper);
    await hold(helper, 2);
    expect(did).toEqual(['load 1', 'update']);
  });
});

describe('a restore', () => {
  it('does not continue from a state of another run', async () => {
    const helper = await nodeAt(2);
    const { store } = harness;
    const { architecture, initializer_range } = (await readRun(store, run)).spec.model;
    await helper.holder.engine.loadRandom({ architecture: architecture!, initializer_range, seed: 99 });
    const did = watched(helper);
    await hold(helper, 2);
    expect(did).toEqual(['load base', 'update', 'update']);
  });

  it('continues from a state that a fork shares with its parent', async () => {
    const helper = await nodeAt(2);
    await harness.advance(3);
    const { store } = harness;
    const lineage = { run, step: 3, state: await readState(store, run, 3) };
    const record = { ...(await readRun(store, run)), run: 'fork', name: 'fork', lineage };
    await adoptOrCreate(store, runKey('fork'), 'run', record);
    const did = watched(helper);
    await hold(helper, 3, 'fork');
    expect(did).toEqual(['update']);
  });
});

describe('a held state that leads to wrong states is not used again (R19):', () => {
  it('the next try uses the newest checkpoint on a fresh engine, the try after that an older checkpoint', async () => {
    await harness.advance(1);
    await checkpoint(1);
    const helper = await nodeAt(2);
    await harness.advance(3);
    const did = watched(helper, 2);
    await hold(helper, 3);
    expect(did).toEqual([
      ...['update', 'restart'],
      ...['load 1', 'update', 'restart'],
      ...['load base', 'update', 'update', 'update'],
    ]);
  });
});
