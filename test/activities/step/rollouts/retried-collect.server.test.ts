// What a failed attempt of collect leaves: its finished episodes count as progress (R27), and its save has ended (R28).
import { describe, expect, it, vi } from 'vitest';
import { collectRollouts } from '../../../../src/activities/step/collect-rollouts.js';
import { createNodeActivities } from '../../../../src/activities/node-activities.js';
import { maxSameFailures } from '../../../../src/activities/attempt/repeated-failures.js';
import { attemptsFolder } from '../../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../../src/store/objects/object-store.js';
import { StoreUnfit } from '../../../../src/store/record-errors.js';
import { activityId, lastSftStep, run } from '../../fixture.js';
import { harness, useHarness } from '../../own-harness.js';
import { overlaid } from '../../../store/overlaid-store.js';

const step = lastSftStep + 1;
const activity = activityId(step, 'collect');

useHarness();

/** A promise, and the function that resolves it. */
function event(): { happened: Promise<void>; happens: () => void } {
  let happens = (): void => undefined;
  const happened = new Promise<void>((resolve) => (happens = resolve));
  return { happened, happens };
}

it('an engine that is killed after each of six episodes does not count as a standstill', async () => {
  const kills = maxSameFailures + 1;
  const generator = { ...(harness.spec['generator'] as object), n_samples_per_prompt: 4 };
  await harness.open({ ...harness.spec, generator });
  await harness.advance(lastSftStep);
  const planned = await harness.plan(step);
  const { collectRollouts: collect } = createNodeActivities(harness.node);
  const { engine } = harness.node.holder;
  const { generate } = engine;
  /** An attempt in which one episode samples; then the engine is killed, and the other episodes fail. */
  async function killedAfterOne(attempt: number): Promise<unknown> {
    const killed = event();
    let sampling = 0;
    engine.generate = async (...args) => {
      sampling += 1;
      if (sampling > 1) await killed.happened;
      return generate(...args);
    };
    const progress: unknown[] = [];
    const kill = async (): Promise<void> => {
      await vi.waitFor(() => expect(progress).toContainEqual({ finished: 1, of: 9 - attempt }), 120_000);
      const pid = harness.engine.pid();
      process.kill(pid ?? NaN, 'SIGKILL');
      // Another engine may be there already.
      await vi.waitFor(() => expect(harness.engine.pid()).not.toBe(pid), 120_000);
      killed.happens();
    };
    const collecting = harness.attempt(activity, () => collect(input), attempt, progress);
    const [outcome] = await Promise.allSettled([collecting, kill()]);
    return outcome.status === 'rejected' ? outcome.reason : outcome.value;
  }
  const input = harness.rollouts(planned);
  const failures: unknown[] = [];
  for (let attempt = 1; attempt <= kills; attempt++) failures.push(await killedAfterOne(attempt));
  expect(failures).toEqual(Array(kills).fill(expect.objectContaining({ name: 'EngineError' })));
  engine.generate = generate;
  expect(await harness.attempt(activity, () => collect(input), kills + 1)).toMatchObject({ graded: 8 });
});

describe('the save during the rollouts', () => {
  it('ends before its attempt ends, even if the attempt fails', async () => {
    await harness.advance(lastSftStep);
    const planned = await harness.plan(step);
    const [begun, released] = [event(), event()];
    const ends: string[] = [];
    const { engine } = harness.node.holder;
    const { saveState } = engine;
    engine.saveState = async (...args) => {
      begun.happens();
      await released.happened;
      const saved = await saveState(...args);
      ends.push('save');
      return saved;
    };
    const create = async (key: string, bytes: Uint8Array): ReturnType<ObjectStore['create']> => {
      if (!key.startsWith(attemptsFolder(run, step))) return harness.store.create(key, bytes);
      await begun.happened;
      // An attempt that did not wait for the save would have ended by then.
      setTimeout(released.happens, 100);
      throw new StoreUnfit('no create-only puts');
    };
    const store = overlaid(harness.store, { create });
    const input = { ...harness.rollouts(planned), keep: true };
    const collecting = harness.attempt(activity, () => collectRollouts({ ...harness.node, store }, input));
    await expect(collecting.finally(() => ends.push('attempt'))).rejects.toThrow('no create-only puts');
    expect(ends).toEqual(['save', 'attempt']);
  });
});
