// Which pair a sweep tries after a failure, and when it leaves the remaining pairs.
import { describe, expect, it } from 'vitest';
import type { PairToDo } from '../../../src/activities/sweep-contracts.js';
import { SweepFailures } from '../../../src/workflows/sweep/sweep-failures.js';

const letters = ['A', 'B', 'C'];

/** The pairs in the order in which they are tried, until the sweep gives up or none is left; a failed pair ends with `!`. */
function tried(states: number, suites: number, fails: (state: number, suite: string) => boolean): string[] {
  const window = Array.from({ length: states * suites }, (_, n): PairToDo => {
    return { n, run: 'r', step: Math.floor(n / suites), suite: letters[n % suites] ?? '' };
  });
  const failures = new SweepFailures([]);
  const seen: string[] = [];
  while (!failures.areEverywhere(window)) {
    const pair = failures.take(window);
    if (pair === undefined) break;
    const failed = fails(pair.step, pair.suite);
    if (failed) failures.add(pair, 'no reason');
    else failures.succeeded();
    seen.push(`${pair.step}${pair.suite}${failed ? '!' : ''}`);
  }
  return seen;
}

describe('a sweep tries', () => {
  it('all pairs in order if nothing fails', () => {
    expect(tried(2, 2, () => false)).toEqual(['0A', '0B', '1A', '1B']);
  });

  it('a failed state’s other suites at the end, however many there are', () => {
    const order = ['0A!', '1A', '1B', '1C', '2A', '2B', '2C', '0B!', '0C!'];
    expect(tried(3, 3, (state) => state === 0)).toEqual(order);
  });

  it('every pair if one suite always fails', () => {
    const order = tried(6, 2, (_, suite) => suite === 'A');
    expect(order.filter((pair) => pair.endsWith('B'))).toHaveLength(6);
    expect(order.slice(0, 3)).toEqual(['0A!', '1A!', '0B']);
  });

  it('only a few pairs if everything fails, and every pair if every second state fails', () => {
    expect(tried(20, 1, () => true)).toEqual(['0A!', '1A!', '2A!']);
    expect(tried(20, 2, () => true)).toEqual(['0A!', '1A!', '0B!', '2A!']);
    expect(tried(20, 1, (state) => state % 2 === 0)).toHaveLength(20);
  });
});
