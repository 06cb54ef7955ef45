// Every wait of a follower has a deadline. A signal asks late work to stop, but nobody waits for it.
import { abortable, joinSignals, pause as pauseUntil } from '../../base/abortable.js';

class TooLate extends Error {
  override name = 'TooLate';
}

/** Throws `TooLate` after `limitMs`, or the abort reason of `outer`, and aborts `work` in both cases. `what` as in "W&B to open". */
export async function within<T>(
  limitMs: number,
  what: string,
  work: (signal: AbortSignal) => Promise<T>,
  outer: AbortSignal,
): Promise<T> {
  outer.throwIfAborted();
  const deadline = new AbortController();
  const late = new TooLate(`waited ${limitMs / 1000} s for ${what} without success`);
  const timer = setTimeout(() => deadline.abort(late), limitMs);
  const { signal, release } = joinSignals([outer, deadline.signal]);
  try {
    return await abortable(work(signal), signal);
  } finally {
    clearTimeout(timer);
    release();
  }
}

/** Waits for `ms`. Returns at once, without an error, when `signal` aborts. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return pauseUntil(ms, signal).catch(() => undefined);
}
