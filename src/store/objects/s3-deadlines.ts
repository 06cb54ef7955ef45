// Time limits for requests and operations of the S3 store. A stall shows as silence, within seconds; a transfer gets time for its bytes, so
// that a large object on a slow line is not given up for being large.
import { backoffMs } from '../../base/backoff.js';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

const firstPauseMs = 100;
const longestPauseMs = 5_000;
/** A connection slower than this is as good as down: a checkpoint would take days. */
const leastBytesPerSecond = 256 * 1024;

/** Time for `bytes` on the slowest accepted connection. */
export function transferMs(bytes: number): number {
  return (bytes / leastBytesPerSecond) * 1000;
}

/**
 * Repeats `attempt` with growing pauses until it gives a value; after the deadline no try is begun, and the reason for the last retry is
 * thrown. `prolong` adds, once, the time that an attempt has found its bytes to need.
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

/** A body's pieces. The socket's time-out ends a silent one; one that only trickles fails after `limitMs`. */
export async function* piecesWithin(body: Readable, limitMs: number): AsyncGenerator<Uint8Array> {
  const end = performance.now() + limitMs;
  for await (const piece of body) {
    if (performance.now() > end) throw new Error(`its body came too slowly, for ${limitMs / 1000} s`);
    yield piece as Uint8Array;
  }
}
