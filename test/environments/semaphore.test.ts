import { describe, expect, it } from 'vitest';
import { createSemaphore } from '../../src/environments/semaphore.js';

const quiet = new AbortController().signal;

/** Asks for places in this order; `log` shows the order of the grants, and `back` returns places. */
function asking(places: number, wishes: readonly ('one' | 'all')[], signals: readonly AbortSignal[] = []) {
  const semaphore = createSemaphore(places);
  const log: number[] = [];
  const back: (() => void)[] = [];
  const asked = wishes.map(async (wish, i) => {
    back[i] = await semaphore.acquire(signals[i] ?? quiet, wish);
    log.push(i);
  });
  const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
  return { semaphore, log, back, asked, settle };
}

describe('places', () => {
  it('go to a caller that wants all places once all places are free, and before later callers', async () => {
    const { log, back, settle } = asking(2, ['one', 'one', 'all', 'one', 'one']);
    await settle();
    expect(log).toEqual([0, 1]);
    back[0]?.();
    await settle();
    expect(log).toEqual([0, 1]);
    back[1]?.();
    await settle();
    expect(log).toEqual([0, 1, 2]);
    back[2]?.();
    await settle();
    expect(log).toEqual([0, 1, 2, 3, 4]);
  });

  it('that nobody waits for any more go to the next caller, and are returned once', async () => {
    const stop = new AbortController();
    const { log, back, asked, settle } = asking(1, ['one', 'all', 'one', 'one'], [quiet, stop.signal]);
    await settle();
    stop.abort(new Error('the run is paused'));
    await expect(asked[1]).rejects.toThrow('the run is paused');
    back[0]?.();
    back[0]?.();
    await settle();
    expect(log).toEqual([0, 2]);
  });

  it('become fewer when the server says how many it has, and taken ones stay taken', async () => {
    const { semaphore, log, back, settle } = asking(4, ['one', 'one', 'one', 'all', 'one']);
    semaphore.shrinkTo(2);
    semaphore.shrinkTo(3);
    await settle();
    expect(log).toEqual([0, 1, 2]);
    back[0]?.();
    back[1]?.();
    await settle();
    expect(log).toEqual([0, 1, 2]);
    back[2]?.();
    await settle();
    // "All" are two now.
    expect(log).toEqual([0, 1, 2, 3]);
    back[3]?.();
    await settle();
    expect(log).toEqual([0, 1, 2, 3, 4]);
  });

  it('become more again a while after the server has said how many it has, but never more than were given', async () => {
    let now = 1_000_000;
    const semaphore = createSemaphore(5, () => now);
    semaphore.shrinkTo(2);
    const taken: (() => void)[] = [];
    const wanted = Array.from({ length: 6 }, async () => taken.push(await semaphore.acquire(quiet)));
    const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
    /** A place that is returned is taken again, with those that are new. */
    const after = async (ms: number): Promise<number> => {
      now += ms;
      taken.shift()!();
      wanted.push(semaphore.acquire(quiet).then((back) => taken.push(back)));
      await settle();
      return taken.length;
    };
    await settle();
    expect(taken).toHaveLength(2);
    expect(await after(59_000)).toBe(2);
    expect(await after(1_000)).toBe(4);
    expect(await after(59_000)).toBe(4);
    expect(await after(1_000)).toBe(5);
    semaphore.limitTo(3);
    for (let round = 0; round < 3; round++) await after(60_000);
    expect(taken.length).toBeLessThanOrEqual(3);
  });

  it('become no more while somebody has them all', async () => {
    let now = 1_000_000;
    const semaphore = createSemaphore(4, () => now);
    semaphore.shrinkTo(2);
    const back = await semaphore.acquire(quiet, 'all');
    now += 60_000;
    await expect(semaphore.acquire(AbortSignal.timeout(50))).rejects.toThrow('timeout');
    back();
    await Promise.all(Array.from({ length: 4 }, () => semaphore.acquire(quiet)));
  });

  it('are refused to a caller that is already aborted', async () => {
    await expect(createSemaphore(1).acquire(AbortSignal.abort(new Error('over')))).rejects.toThrow('over');
  });
});
