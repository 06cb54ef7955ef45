// The trainer's log-probs of a batch influence the training, so each changed bit of their file must be noticed, and the error names the file.
import { beforeEach, describe, expect, it } from 'vitest';
import { sha256Hex } from '../../../src/base/sha256.js';
import { rescoredKey } from '../../../src/store/record-keys.js';
import { chooseRescored, encodeRescored, readRescored } from '../../../src/store/runs/rescored-logprobs.js';
import { memoryStore, type MemoryStore } from '../../workers/follower/memory-store.js';
import { digestOf } from '../fixtures.js';
import { batch, flipped, key, place, replace, trainerLogprobs } from '../rescored-step.js';

const targets = trainerLogprobs.length;

const fileOf = (logprobs = trainerLogprobs): Uint8Array => encodeRescored(batch, logprobs);

describe('the rescored log-probs of a batch', () => {
  let store: MemoryStore;
  beforeEach(() => void (store = memoryStore()));

  const unreadable = (problem: string) => ({
    ...{ name: 'UnreadableRecord', key },
    problem: expect.stringContaining(problem) as string,
  });

  it('are those of the first process, and are named by the sha256 of their file', async () => {
    const first = await chooseRescored(store, place, trainerLogprobs);
    expect(first).toEqual({ logprobs: trainerLogprobs, sha256: sha256Hex((await store.get(key))!) });
    expect(await chooseRescored(store, place, Float32Array.from([-3, -3, -3]))).toEqual(first);
    expect(await readRescored(store, place, targets, first.sha256)).toEqual(first);
  });

  it('are not read if any bit of their file was flipped', async () => {
    await chooseRescored(store, place, trainerLogprobs);
    const whole = Buffer.from((await store.get(key))!);
    for (let bit = 0; bit < 8 * whole.length; bit++) {
      await replace(store, key, () => flipped(bit)(Buffer.from(whole)));
      await expect(chooseRescored(store, place, trainerLogprobs), `bit ${bit}`).rejects.toMatchObject({
        ...{ name: 'UnreadableRecord', key },
      });
    }
  });

  it('are not read if their file is not the one that the update names', async () => {
    await store.create(key, fileOf(Float32Array.from([-3, -3, -3])));
    const read = readRescored(store, place, targets, digestOf('9'));
    await expect(read).rejects.toMatchObject(unreadable('its sha256 is not the one in update.json'));
  });

  it('are refused if they are missing, not finite, too few, or of another batch', async () => {
    const read = () => readRescored(store, place, targets);
    await expect(read()).rejects.toMatchObject(unreadable('it is not in the store'));
    await store.create(key, fileOf(Float32Array.from([-1, NaN, -1])));
    await expect(read()).rejects.toMatchObject(unreadable('not finite'));
    await replace(store, key, () => fileOf(Float32Array.from([-1])));
    await expect(read()).rejects.toMatchObject(unreadable('it has 1 log-probs, and the batch has 3 targets'));
    const other = { ...place, batch: digestOf('9') };
    await chooseRescored(store, other, trainerLogprobs);
    const moved = (await store.get(rescoredKey(other.run, other.step, other.batch)))!;
    await replace(store, key, () => moved);
    await expect(read()).rejects.toMatchObject(unreadable('it belongs to another batch'));
  });
});
