// Every slot and sample of a plan gets one record, and an episode with a record is never sampled again (R8, R9).
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { collectRollouts } from '../../../../src/activities/step/collect-rollouts.js';
import { saveState, uploadCheckpoint } from '../../../../src/activities/step/save-state.js';
import type { AttemptRecord } from '../../../../src/spec/records/attempt-records.js';
import { attemptsFolder, episodeKey, planKey } from '../../../../src/store/record-keys.js';
import { readRecord } from '../../../../src/store/records/records.js';
import { readUpdate } from '../../../../src/store/runs/run-records.js';
import { counting, run, tamper } from '../../fixture.js';
import { collect, episodeAt, harness, planned, step, update, useGrpoStep } from '../grpo-step.js';

useGrpoStep();

function gate(): { open: Promise<void>; release: () => void } {
  let release = (): void => undefined;
  const open = new Promise<void>((resolve) => (release = resolve));
  return { open, release: () => release() };
}

async function starts(activity: string): Promise<string[]> {
  const found: string[] = [];
  for await (const { key } of harness.store.list(`${attemptsFolder(run, step)}${activity}/`)) {
    found.push(...((await readRecord(harness.store, key, 'attempt')) as AttemptRecord).starts);
  }
  return found;
}

describe('collectRollouts', () => {
  it('gives every slot and sample its record, after an attempt record that announces it', async () => {
    const { answer, plan } = await planned();
    expect(await collect(answer)).toMatchObject({ graded: 4, unknown: 0, mean_reward: 0 });
    for (const { slot, task_key } of plan.slots) {
      for (const sample of [0, 1]) {
        expect(await episodeAt(slot, sample)).toMatchObject({
          plan: answer.plan,
          state: plan.previous_state,
          task_key,
          outcome: { status: 'graded', value: 0 },
        });
      }
    }
    expect((await starts('collect')).sort()).toEqual(
      [0, 1].flatMap((slot) => [0, 1].map((sample) => episodeKey(run, step, slot, sample))),
    );
  });

  it('saves the sampling state to the disk with `keep`, and not without it', async () => {
    const { answer, plan } = await planned();
    const { holder } = harness.node;
    expect((await collect(answer)).kept).toBeNull();
    expect(await holder.keeper.states.list(run)).toEqual([]);
    const keep = () =>
      harness.attempt('collect', () =>
        collectRollouts(harness.node, { ...harness.reference(answer), slots: [0, 2], keep: true }),
      );
    expect((await keep()).kept).toEqual({ seconds: expect.any(Number) as number });
    expect(await holder.keeper.states.list(run)).toEqual([{ step: step - 1, state: plan.previous_state }]);
  });

  describe('measures how long the update waits for the save alone (R16):', () => {
    const updated = async () => {
      const { answer } = await planned();
      await harness.attempt('collect', () =>
        collectRollouts(harness.node, { ...harness.reference(answer), slots: [0, 2], keep: true }),
      );
      await update(answer);
      return (await readUpdate(harness.store, run, step)).observed.timings_ms;
    };

    it('0, if the save ends before the rollouts', async () => {
      const { engine } = harness.node.holder;
      const { generate, saveState } = engine;
      const saved = gate();
      engine.saveState = async (...args) => saveState(...args).finally(saved.release);
      engine.generate = async (...args) => {
        await saved.open;
        return generate(...args);
      };
      expect(await updated()).toMatchObject({ checkpoint_stall: 0 });
    });

    it('from the last episode’s record to the end of the save', async () => {
      const { engine } = harness.node.holder;
      const { saveState } = engine;
      const filled = gate();
      const { create } = harness.store;
      let [episodes, filledAt, stalled] = [0, 0, 0];
      harness.store.create = async (key, ...rest) => {
        const created = await create.call(harness.store, key, ...rest);
        if (key.includes('/episodes/') && ++episodes === 4) {
          filledAt = performance.now();
          filled.release();
        }
        return created;
      };
      engine.saveState = async (...args) => {
        await filled.open;
        // A slow disk; the rollouts end shortly after their last record.
        await delay(500);
        const saved = await saveState(...args);
        stalled = performance.now() - filledAt;
        return saved;
      };
      const { checkpoint_stall } = await updated();
      expect(checkpoint_stall).toBeGreaterThan(0);
      // After the engine's save, the node's part follows, such as removing older states.
      expect(checkpoint_stall).toBeLessThan(stalled + 1_000);
    });

    it('the whole save, if no episodes are sampled meanwhile', async () => {
      const { answer } = await planned();
      await harness.attempt('save', () =>
        saveState(harness.node, { ...harness.reference(answer), step: step - 1 }),
      );
      await collect(answer);
      await update(answer);
      const { timings_ms } = (await readUpdate(harness.store, run, step)).observed;
      expect(timings_ms['checkpoint_stall']).toBeGreaterThan(0);
    });

    it('no figure, if the state is only restored for its upload', async () => {
      const { answer } = await planned();
      const kept = { ...harness.reference(answer), step: step - 1, restore: true };
      await harness.attempt('upload', () => uploadCheckpoint(harness.node, kept));
      await collect(answer);
      await update(answer);
      expect((await readUpdate(harness.store, run, step)).observed.timings_ms).not.toHaveProperty(
        'checkpoint_stall',
      );
    });

    it('no figure, if nothing is saved', async () => {
      const { answer } = await planned();
      await collect(answer);
      await update(answer);
      expect((await readUpdate(harness.store, run, step)).observed.timings_ms).not.toHaveProperty(
        'checkpoint_stall',
      );
    });
  });

  it('succeeds even if the state cannot be saved, and says why', async () => {
    const { answer } = await planned();
    // A file in the place of the states' folder.
    writeFileSync(join(harness.folder, 'node-a', 'states'), '');
    const collected = await harness.attempt('collect', () =>
      collectRollouts(harness.node, { ...harness.reference(answer), slots: [0, 2], keep: true }),
    );
    expect(collected).toMatchObject({
      graded: 4,
      kept: { problem: expect.stringContaining('states') as string },
    });
  });

  it('samples no finished episode again (R9): only the missing episode is played', async () => {
    const { answer } = await planned();
    await collect(answer, [0, 1]);
    const before = await harness.store.get(episodeKey(run, step, 0, 1));
    await tamper(harness.store, episodeKey(run, step, 0, 0), () => null);
    const { deps, calls } = counting(harness.node);
    expect(await collect(answer, [0, 2], deps, 2)).toMatchObject({ graded: 4 });
    expect(calls.generate).toBe(3);
    expect(await harness.store.get(episodeKey(run, step, 0, 1))).toEqual(before);
    await collect(answer, [0, 2], deps, 3);
    expect(calls.generate).toBe(3);
  });

  it('looks again after it has waited for the engine (R9), and plays nothing that another node has finished', async () => {
    const { answer } = await planned();
    const { deps, calls } = counting(harness.node);
    const waits = vi.spyOn(deps.holder, 'withState');
    let letGo = (): void => undefined;
    let held: Promise<void> = Promise.resolve();
    await new Promise<void>((isHeld) => {
      held = deps.holder.alone(run, step - 1, 'none', () => {
        isHeld();
        return new Promise<void>((resolve) => (letGo = resolve));
      });
    });
    const late = collect(answer, [0, 2], deps);
    await vi.waitFor(() => expect(waits).toHaveBeenCalled(), 120_000);
    await collect(answer, [0, 2], harness.secondNode(), 2);
    letGo();
    await held;
    expect(await late).toMatchObject({ graded: 4 });
    expect(calls.generate).toBe(0);
    // Its attempt records also say so: only the other node has begun these episodes.
    expect(await starts('collect')).toHaveLength(4);
  });

  it('plays an episode again with the same tokens, also on another node', async () => {
    const { answer } = await planned();
    await collect(answer);
    const { observed: _, ...first } = await episodeAt(1, 0);
    await tamper(harness.store, episodeKey(run, step, 1, 0), () => null);
    await collect(answer, [0, 2], harness.secondNode(), 2);
    const { observed: __, ...second } = await episodeAt(1, 0);
    expect(second).toEqual(first);
  });

  it('does not use the engine for a committed step', async () => {
    const { answer } = await planned();
    await collect(answer);
    await update(answer);
    await tamper(harness.store, episodeKey(run, step, 0, 0), () => null);
    const { deps, calls } = counting(harness.node);
    expect(await collect(answer, [0, 2], deps, 2)).toMatchObject({ graded: 4 });
    expect(await collect(answer, [1, 2], deps, 2)).toMatchObject({ graded: 2 });
    expect(calls.generate).toBe(0);
  });

  it('refuses a plan that was changed after it was recorded', async () => {
    const { answer } = await planned();
    await tamper(harness.store, planKey(run, step), (bytes) =>
      bytes.toString().replace('"temperature":1', '"temperature":2'),
    );
    await expect(collect(answer)).rejects.toMatchObject({
      name: 'UnreadableRecord',
      key: planKey(run, step),
    });
  });
});
