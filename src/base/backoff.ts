// Pauses between tries, each twice as long as the one before.

/** In milliseconds. The longest may be Infinity. */
export type BackoffRange = readonly [firstMs: number, longestMs: number];

/** The pause after `failures` failures in a row (1 or more), in milliseconds. */
export function backoffMs(failures: number, [firstMs, longestMs]: BackoffRange): number {
  return Math.min(firstMs * 2 ** (failures - 1), longestMs);
}

/** Counts the failures of one loop of tries. */
export class Backoff {
  private failures = 0;

  constructor(private readonly range: BackoffRange) {}

  /** The pause after one more failure, in milliseconds. */
  next(): number {
    this.failures += 1;
    return backoffMs(this.failures, this.range);
  }

  /** After a success: the next pause is the first one again. */
  reset(): void {
    this.failures = 0;
  }
}
