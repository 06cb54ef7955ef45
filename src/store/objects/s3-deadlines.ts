// Time limits for requests and operations of the S3 store. A stalled connection is noticed within seconds, by its silence. A transfer's
// limit grows with its size, so a large object on a slow connection does not time out.
import { backoffMs } from '../../base/backoff.js';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

const firstPauseMs = 100;
const longestPauseMs = 5_000;
/** A slower connection is treated as down: a checkpoint would take days. */
const leastBytesPerSecond = 256 * 1024;

/** Time for `bytes` on the slowest accepted connection. */
export function transferMs(bytes: number): number {
  return (bytes / leastBytesPerSecond) * 1000;
}

/**
 * Repeats `attempt`, with growing pauses, until it returns a value. Starts no try after the deadline, and then throws the last `retry`
 * error. An attempt that learns its object's size calls `prolong` with the time for these bytes; later calls replace the first.
 */
export async function withDeadline<T>(
  deadlineMs: number,
  attempt: (n: number, prolong: (ms: number) => void) => Promise<{ value: T } | { retry: Error }>,
): Promise<T> {
  const end = performance.now() + deadlineMs;
  let prolonged = 0;
  for (let n = 1; ; n++) {
    const result = await attempt(n, (ms) => {
      prolonged = ms;
    });
    if ('value' in result) return result.value;
    const pause = backoffMs(n, [firstPauseMs, longestPauseMs]) * (0.5 + Math.random() / 2);
    if (performance.now() + pause > end + prolonged) throw result.retry;
    await sleep(pause);
  }
}

/** Yields the body's pieces, and throws if they take longer than `limitMs`. (The socket's time-out ends a body that sends nothing.) */
export async function* piecesWithin(body: Readable, limitMs: number): AsyncGenerator<Uint8Array> {
  const end = performance.now() + limitMs;
  for await (const piece of body) {
    if (performance.now() > end) throw new Error(`its body arrived too slowly for ${limitMs / 1000} s`);
    yield piece as Uint8Array;
  }
}
