// A node that leaves uploads the state after its last commit, because no other place has it.
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

  it('has nothing to upload before it has committed a step', async () => {
    await harness.advance(0);
    expect(await keepLastCommit(harness.node, never)).toBeNull();
  });

  it('leaves no checkpoint if it is stopped before the end of the upload', async () => {
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

  it('uploads the step’s state once, and another node continues from it without a replay', async () => {
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
    expect(await second.holder.withState(run, 3, 'visitor', (held) => Promise.resolve(held))).toBe(wanted);
    expect(calls.update).toBe(0);
  });

  it('uploads nothing if its engine has dropped the state: the records can restore it', async () => {
    await harness.advance(4);
    await harness.node.holder.engine.restart();
    expect(await keepLastCommit(harness.node, never)).toBeNull();
    expect(await checkpoints()).toEqual([3]);
  });
});
