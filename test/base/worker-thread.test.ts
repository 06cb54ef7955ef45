import { getEventListeners } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { startThread, type WorkerThread } from '../../src/base/worker-thread.js';
import type { Awkward } from './awkward-thread.js';

const entry = new URL('./awkward-thread.js', import.meta.url);
let stop: AbortController;
let thread: WorkerThread<Awkward, string>;
const start = (deadlineMs: number) =>
  (thread = startThread<Awkward, string>(entry, { deadlineMs, signal: stop.signal }));
beforeEach(() => {
  stop = new AbortController();
  start(15_000);
});
afterEach(() => thread.end());

test('a thread answers several calls, and releases the signal when it ends', async () => {
  expect(await thread.call({ answer: 'one' })).toBe('one');
  expect(await thread.call({ answer: 'two' })).toBe('two');
  await thread.end();
  expect(getEventListeners(stop.signal, 'abort')).toEqual([]);
});

test('an error arrives with its class, its fields and its cause; the thread then answers no more', async () => {
  const error: unknown = await thread.call({ fail: 'no such slot' }).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(RangeError);
  expect(error).toMatchObject({ message: 'no such slot', slot: 7, cause: { message: 'why' } });
  expect((error as Error).stack).toContain('awkward-thread');
  await expect(thread.call({ answer: 'one' })).rejects.toBe(error);
});

test('an error of SQLite arrives with its message, its code and where it was thrown', async () => {
  const error: unknown = await thread.call({ sql: 'SELEC 1' }).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(Error);
  expect(error).toMatchObject({ message: 'near "SELEC": syntax error', code: 'SQLITE_ERROR' });
  expect((error as Error).stack).toContain('awkward-thread');
});

test('a thread that ends without an answer is an error', async () => {
  await expect(thread.call('end')).rejects.toThrow('the thread awkward-thread.js ended with code 3');
});

test('the signal ends a computation, and rejects with its reason', async () => {
  expect(await thread.call({ answer: 'started' })).toBe('started');
  const computed = thread.call('compute');
  const reason = new Error('called off');
  setTimeout(() => stop.abort(reason), 20);
  await expect(computed).rejects.toBe(reason);
  await expect(thread.call({ answer: 'one' })).rejects.toBe(reason);
});

test('the deadline ends a computation', async () => {
  await thread.end();
  start(50);
  await expect(thread.call('compute')).rejects.toThrow('gave no answer within 50 ms');
});

test('ending a thread that has outlived its deadline ends its computation', async () => {
  await thread.end();
  start(100);
  const count = new Int32Array(new SharedArrayBuffer(4));
  await expect(thread.call({ count })).rejects.toThrow('gave no answer');
  await vi.waitUntil(() => count[0] !== 0);
  await thread.end();
  const [counted] = count;
  await delay(100);
  expect(count[0]).toBe(counted);
});

test('a finished call leaves no timer that would keep its process alive', async () => {
  const timers = (): number =>
    process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;
  const before = timers();
  for (let n = 0; n < 20; n++) await thread.call({ answer: 'done' });
  // Other code in this process may have started a few timers meanwhile.
  expect(timers() - before).toBeLessThan(10);
});

test('ending a thread rejects the running call, and a second call is refused while the first one runs', async () => {
  const computed = thread.call('compute');
  await expect(thread.call({ answer: 'one' })).rejects.toThrow('was called while it was computing');
  const ended = expect(computed).rejects.toThrow('the thread was ended');
  await thread.end();
  await ended;
});
