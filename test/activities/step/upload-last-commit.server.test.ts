// What a node that leaves brings to the store: the state after its last commit, which is nowhere else.
import { describe, expect, it, vi } from 'vitest';
import { keepLastCommit } from '../../../src/activities/step/upload-last-commit.js';
import { listCheckpoints } from '../../../src/store/runs/checkpoints.js';
import { readRun, readState } from '../../../src/store/runs/run-records.js';
import { counting, run } from '../fixture.js';
import { harness, useSharedHarness } from '../own-harness.js';

const never = new AbortController().signal;

describe('a node that leaves', () => {
  useSharedHarness();
  const checkpoints = async () => listCheckpoints(harness.store, await readRun(harness.store, run));

  it('has nothing to bring before it has committed a step', async () => {
    await harness.advance(0);
    expect(await keepLastCommit(harness.node, never)).toBeNull();
  });

  it('leaves no checkpoint where it is cut off before the upload’s end', async () => {
    await harness.advance(3);
    const grace = new AbortController();
    const { engine } = harness.node.holder;
    const save = engine.saveState;
    engine.saveState = async (...request) => {
      const saved = await save(...request);
      grace.abort(new Error('the grace is over'));
      return saved;
    };
    await expect(keepLastCommit(harness.node, grace.signal)).rejects.toThrow(/aborted/);
    engine.saveState = save;
    expect(await checkpoints()).toEqual([]);
  });

  it('brings the state of the step to the store, once, and another node goes on from it without a replay', async () => {
    expect(await keepLastCommit(harness.node, never)).toEqual({ run, step: 3 });
    const writes = [vi.spyOn(harness.store, 'create'), vi.spyOn(harness.store, 'createFromFile')];
    expect(await keepLastCommit(harness.node, never)).toEqual({ run, step: 3 });
    for (const write of writes) {
      expect(write).not.toHaveBeenCalled();
      write.mockRestore();
    }
    expect(await checkpoints()).toEqual([3]);
    const { deps: second, calls } = counting(harness.secondNode());
    const wanted = await readState(harness.store, run, 3);
    expect(await second.holder.withState(run, 3, (held) => Promise.resolve(held))).toBe(wanted);
    expect(calls.update).toBe(0);
  });

  it('leaves a state to the records that its engine has given up since', async () => {
    await harness.advance(4);
    await harness.node.holder.engine.restart();
    expect(await keepLastCommit(harness.node, never)).toBeNull();
    expect(await checkpoints()).toEqual([3]);
  });
});
