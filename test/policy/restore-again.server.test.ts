// A restore that disagrees with a record is repeated: on a fresh engine, then from an older checkpoint (R19).
import { beforeEach, describe, expect, it } from 'vitest';
import { saveState, uploadCheckpoint } from '../../src/activities/step/save-state.js';
import { readState } from '../../src/store/runs/run-records.js';
import { lastSftStep, type NativeNode, run } from '../activities/fixture.js';
import { harness, useHarness } from '../activities/own-harness.js';

useHarness();
beforeEach(async () => {
  await harness.advance(checkpoint);
  const reference = { run, step: checkpoint, owner: 1 };
  await harness.attempt('save', () => saveState(harness.node, reference));
  await harness.attempt('upload', () => uploadCheckpoint(harness.node, reference));
  await harness.advance(lastSftStep);
});

/** The supervised step before the last one. */
const checkpoint = lastSftStep - 1;

/** A node whose first `times` updates give a wrong state, and the list of its loads and updates. */
function wrongAtFirst(times: number): { deps: NativeNode; did: string[] } {
  const deps = harness.secondNode();
  const { engine } = deps.holder;
  const { update, restart, loadRandom, loadState } = engine;
  const did: string[] = [];
  let left = times;
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
    did.push(left > 0 ? 'wrong' : 'right');
    return left-- > 0 ? { ...result, state: 'f'.repeat(64) } : result;
  };
  return { deps, did };
}

const hold = ({ holder }: NativeNode): Promise<void> =>
  holder.withState(run, lastSftStep, 'visitor', () => Promise.resolve());

describe('a restore that disagrees with a record', () => {
  it('is repeated from the same checkpoint on a fresh engine', async () => {
    const { deps, did } = wrongAtFirst(1);
    await hold(deps);
    expect(did).toEqual(['load 1', 'wrong', 'restart', 'load 1', 'right']);
  });

  it('starts its third attempt before that checkpoint', async () => {
    const { deps, did } = wrongAtFirst(2);
    await hold(deps);
    const fresh = ['load 1', 'wrong', 'restart', 'load 1', 'wrong', 'restart'];
    expect(did).toEqual([...fresh, 'load base', 'right', 'right']);
    expect(harness.said.at(-1)).toBe(
      `restored ${run} step ${lastSftStep}: checkpoint 0 and 2 logged updates`,
    );
    expect((await deps.holder.engine.held())?.state).toBe(await readState(harness.store, run, lastSftStep));
  });

  it('is given up after the third attempt', async () => {
    const { deps, did } = wrongAtFirst(3);
    await expect(hold(deps)).rejects.toMatchObject({ name: 'Diverged' });
    expect(did.filter((what) => what === 'wrong')).toHaveLength(3);
  });
});
