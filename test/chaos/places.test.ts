import { describe, expect, test } from 'vitest';
import { inPlaces } from './places.js';

/** Runs items that end, or free their places, when they are told to. */
function runner() {
  const begun: string[] = [];
  const [free, end] = [new Map<string, () => void>(), new Map<string, (error?: Error) => void>()];
  const begin = (item: string, freed: () => void): Promise<void> => {
    begun.push(item);
    free.set(item, freed);
    return new Promise((resolve, reject) => end.set(item, (error) => (error ? reject(error) : resolve())));
  };
  return { begun, begin, free, end };
}
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('places', () => {
  test('hold so many at once, and the next one when one has ended', async () => {
    const { begun, begin, end } = runner();
    const all = inPlaces(['a', 'b', 'c'], 2, begin);
    await settle();
    expect(begun).toEqual(['a', 'b']);
    end.get('b')?.();
    await settle();
    expect(begun).toEqual(['a', 'b', 'c']);
    end.get('a')?.();
    end.get('c')?.();
    await all;
  });

  test('are given to the next one by what only waits, which is waited for all the same', async () => {
    const { begun, begin, free, end } = runner();
    let over = false;
    const all = inPlaces(['a', 'b', 'c'], 1, begin).then(() => (over = true));
    await settle();
    free.get('a')?.();
    await settle();
    expect(begun).toEqual(['a', 'b']);
    // Its end frees no second place.
    end.get('a')?.();
    await settle();
    expect(begun).toEqual(['a', 'b']);
    end.get('b')?.();
    await settle();
    expect([begun, over]).toEqual([['a', 'b', 'c'], false]);
    end.get('c')?.();
    await all;
  });

  test('tell an error when all have ended, and take no other after an interruption', async () => {
    const { begun, begin, end } = runner();
    const stop = new AbortController();
    const all = inPlaces(['a', 'b', 'c'], 2, begin, stop.signal);
    await settle();
    end.get('a')?.(new Error('a failed'));
    await settle();
    stop.abort();
    end.get('c')?.();
    end.get('b')?.();
    await expect(all).rejects.toThrow('a failed');
    expect(begun).toEqual(['a', 'b', 'c']);
  });
});
