// Takes the steps of a run on a Tinker server whatever fails, as Temporal does.
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'vitest';
import { episodesFolder } from '../../../src/store/record-keys.js';
import { type Harness, run } from '../../activities/fixture.js';
import { collect, commitServedBase, lastStep, passOne, type ServedNode, update } from './fixture.js';

/** Waits are as long as in use, but for the pauses between tries. */
export const shortPauses = { pause: (ms: number) => delay(ms / 20) };

/** Takes all steps as Temporal does: an activity that fails is tried again, on the node that `nodeAt` gives. */
export async function train(harness: Harness, nodeAt: (step: number, attempt: number) => ServedNode) {
  const episodes = new Map<string, string | null>();
  await commitServedBase(harness, nodeAt(0, 1));
  for (let step = 1; step <= lastStep; step++) {
    const planned = await harness.plan(step);
    await untilDone((attempt) => collect(harness, nodeAt(step, attempt), planned, attempt));
    await passOne(harness, step);
    for await (const { key } of harness.store.list(episodesFolder(run, step)))
      episodes.set(key, await digestOf(harness, key));
    await untilDone((attempt) => update(harness, nodeAt(step, attempt), planned, attempt));
  }
  // No finished episode was sampled again.
  for (const [key, digest] of episodes) expect(await digestOf(harness, key)).toBe(digest);
}

async function digestOf({ store }: Harness, key: string): Promise<string> {
  return Buffer.from((await store.get(key))!).toString('base64');
}

/** As Temporal tries an activity again, after ever longer pauses. */
export async function untilDone<T>(attempt: (number: number) => Promise<T>, pauseMs = 100): Promise<T> {
  for (let number = 1; ; number++) {
    try {
      return await attempt(number);
    } catch (error) {
      if (number === 6) throw error;
      await delay(pauseMs * 2 ** number);
    }
  }
}
