// A thread that answers, fails, ends, or computes for ever, as a test asks.
import Database from 'better-sqlite3';
import { answerCalls } from '../../src/base/worker-thread.js';

export type Awkward =
  | { answer: string }
  | { fail: string }
  | { sql: string }
  | 'end'
  | 'compute'
  /** Counts up for ever, in shared memory. */
  | { count: Int32Array<SharedArrayBuffer> };

answerCalls((call: Awkward) => {
  if (call === 'end') process.exit(3);
  if (call === 'compute') for (;;);
  if ('count' in call) for (;;) Atomics.add(call.count, 0, 1);
  if ('sql' in call) return String(new Database(':memory:').exec(call.sql));
  if ('answer' in call) return call.answer;
  throw Object.assign(new RangeError(call.fail), { slot: 7, cause: new TypeError('why') });
});
