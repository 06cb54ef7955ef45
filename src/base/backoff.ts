// Pauses between retries, each twice as long as the one before.

/** In milliseconds. The longest may be Infinity. */
export type BackoffRange = readonly [firstMs: number, longestMs: number];

/** The pause after `failures` failures in a row (1 or more), in milliseconds. */
export function backoffMs(failures: number, [firstMs, longestMs]: BackoffRange): number {
  return Math.min(firstMs * 2 ** (failures - 1), longestMs);
}

/** Counts the failures of one retry loop. */
export class Backoff {
  private failures = 0;

  constructor(private readonly range: BackoffRange) {}

  /** Counts a failure; returns the next pause, in milliseconds. */
  next(): number {
    this.failures += 1;
    return backoffMs(this.failures, this.range);
  }

  /** Call after a success: the next pause is the shortest again. */
  reset(): void {
    this.failures = 0;
  }
}
