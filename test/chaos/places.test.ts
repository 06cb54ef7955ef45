import { describe, expect, test } from 'vitest';
import { inPlaces } from './places.js';

/** Starts items that end or free their places when the test says so. */
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
  test('hold a fixed number of items, and take the next item when an item has ended', async () => {
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

  test('are freed by an item that only waits; the whole list still ends only after that item', async () => {
    const { begun, begin, free, end } = runner();
    let over = false;
    const all = inPlaces(['a', 'b', 'c'], 1, begin).then(() => (over = true));
    await settle();
    free.get('a')?.();
    await settle();
    expect(begun).toEqual(['a', 'b']);
    // The end of an item that has freed its place does not free a second place.
    end.get('a')?.();
    await settle();
    expect(begun).toEqual(['a', 'b']);
    end.get('b')?.();
    await settle();
    expect([begun, over]).toEqual([['a', 'b', 'c'], false]);
    end.get('c')?.();
    await all;
  });

  test('report an error only when all items have ended, and start no item after an interruption', async () => {
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
