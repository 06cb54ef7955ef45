// A store that does not answer, or has no space, is waited out where the work of others would be lost with ours.
import { setTimeout as sleep } from 'node:timers/promises';
import { mendsItself } from './repeated-failures.js';

const firstPauseMs = 200;
const pauseFactor = 1.5;
const maxPauseMs = 10_000;
const defaultLimitMs = 10 * 60_000;

export interface Patience {
  /** Ends the wait with its reason. */
  signal: AbortSignal;
  /** Called before each pause: waiting with a deadline is no standstill. */
  onWait: () => void;
  /** From the first failure on. */
  limitMs?: number;
}

/** Tries again after a loss that ends by itself or a full store; its error is thrown when it has lasted for `limitMs`. */
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
