// Waits for a store that does not answer or is full, where failing would lose others' work with ours.
import { setTimeout as sleep } from 'node:timers/promises';
import { mendsItself } from './repeated-failures.js';

const firstPauseMs = 200;
const pauseFactor = 1.5;
const maxPauseMs = 10_000;
const defaultLimitMs = 10 * 60_000;

export interface Patience {
  /** Rejects the wait with its reason. */
  signal: AbortSignal;
  /** Called before each pause: waiting with a deadline is no standstill. */
  onWait: () => void;
  /** Counted from the first failure. */
  limitMs?: number;
}

/** Tries again while the store is full or unavailable; throws its error once that has lasted for `limitMs`. */
export async function waitOutStore<T>(
  use: () => Promise<T>,
  { signal, onWait, limitMs = defaultLimitMs }: Patience,
): Promise<T> {
  let giveUpAt: number | null = null;
  for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(maxPauseMs, pauseMs * pauseFactor)) {
    try {
      return await use();
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof Error) || !mendsItself(error)) throw error;
      giveUpAt ??= Date.now() + limitMs;
      if (Date.now() + pauseMs > giveUpAt) throw error;
      onWait();
      await sleep(pauseMs, undefined, { signal }).catch(() => signal.throwIfAborted());
    }
  }
}
