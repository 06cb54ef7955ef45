// Waits for a store that is full or does not answer, in places where a failure would also lose other work in progress.
import { pause } from '../../base/abortable.js';
import { mendsItself } from './repeated-failures.js';

const firstPauseMs = 200;
const pauseFactor = 1.5;
const maxPauseMs = 10_000;
const defaultLimitMs = 10 * 60_000;

export interface Patience {
  /** Ends the wait by rejecting with the signal's reason. */
  signal: AbortSignal;
  /** Called before each pause, so that the attempt still counts as alive. */
  onWait: () => void;
  /** Counted from the first failure. */
  limitMs?: number;
}

/** Retries while the store is full or unavailable. Throws the store's error after `limitMs`. */
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
      await pause(pauseMs, signal);
    }
  }
}
