import { expect, test } from 'vitest';
import { Backoff, backoffMs } from '../../src/base/backoff.js';

test('pauses double from the first to the longest', () => {
  expect([1, 2, 3, 4, 5, 2_000].map((failures) => backoffMs(failures, [50, 300]))).toEqual([
    50, 100, 200, 300, 300, 300,
  ]);
});

test('after a success the first pause comes again', () => {
  const pauses = new Backoff([50, Infinity]);
  expect([pauses.next(), pauses.next(), pauses.next()]).toEqual([50, 100, 200]);
  pauses.reset();
  expect(pauses.next()).toBe(50);
});
