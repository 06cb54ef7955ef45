import { expect, test } from 'vitest';
import { RequestWindow } from '../../../src/engine/tinker/request-window.js';

/** Requests that are open until the test ends them. */
function requests(window: RequestWindow, count: number, signal?: AbortSignal) {
  const begun: number[] = [];
  const ends: (() => void)[] = [];
  const all = Array.from({ length: count }, (_, one) =>
    window.within(() => {
      begun.push(one);
      return new Promise<void>((resolve) => (ends[one] = resolve));
    }, signal),
  );
  return { begun, end: (one: number) => ends[one]!(), all };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('no more requests are open than the window has room for, and the others follow in their order', async () => {
  const { begun, end, all } = requests(new RequestWindow(2), 5);
  await turn();
  expect(begun).toEqual([0, 1]);
  end(1);
  await turn();
  expect(begun).toEqual([0, 1, 2]);
  for (const one of [0, 2, 3, 4]) {
    end(one);
    await turn();
  }
  await Promise.all(all);
});

test('the window is halved by a refusal, grows by one with each taken request, and is never 0', () => {
  const window = new RequestWindow(64);
  for (const limit of [32, 16, 8, 4, 2, 1, 1]) {
    window.refused();
    expect(window.limit).toBe(limit);
  }
  window.taken();
  expect(window.limit).toBe(2);
  for (let i = 0; i < 100; i++) window.taken();
  expect(window.limit).toBe(64);
});

test('a request that leaves the queue gives its place to the next', async () => {
  const window = new RequestWindow(1);
  const abort = new AbortController();
  const first = requests(window, 1);
  const left = requests(window, 1, abort.signal);
  const next = requests(window, 1);
  const outcome = expect(left.all[0]).rejects.toThrow('gone');
  abort.abort(new Error('gone'));
  await outcome;
  first.end(0);
  await turn();
  expect(left.begun).toEqual([]);
  expect(next.begun).toEqual([0]);
  next.end(0);
  await Promise.all([...first.all, ...next.all]);
});
