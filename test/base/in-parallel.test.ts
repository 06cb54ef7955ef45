import { describe, expect, test } from 'vitest';
import { inParallel } from '../../src/base/in-parallel.js';

const items = Array.from({ length: 100 }, (_, index) => index);
const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('work in parallel', () => {
  test('returns its results in the order of the items, and runs at most 32 at a time', async () => {
    let [now, most] = [0, 0];
    const results = await inParallel(items, async (item) => {
      most = Math.max(most, ++now);
      for (let turns = items.length - item; turns > 0; turns--) await turn();
      now -= 1;
      return item * 2;
    });
    expect(results).toEqual(items.map((item) => item * 2));
    expect(most).toBe(32);
  });

  test('starts nothing more after a failure, and throws that failure', async () => {
    const begun: number[] = [];
    const failing = inParallel(items, async (item) => {
      begun.push(item);
      await turn();
      if (item === 5) throw new Error('the sixth');
    });
    await expect(failing).rejects.toThrow('the sixth');
    const untilThen = begun.length;
    for (let turns = 0; turns < 10; turns++) await turn();
    expect(begun).toHaveLength(untilThen);
    expect(untilThen).toBeLessThan(items.length);
  });

  test('without items returns nothing', async () => {
    expect(await inParallel([], () => Promise.reject(new Error('never')))).toEqual([]);
  });
});
