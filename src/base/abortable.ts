// Waits that end early.
import { setTimeout as sleep } from 'node:timers/promises';

/** Returns the promise's result; rejects with the signal's reason as soon as the signal aborts. */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  let onAbort = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason as Error);
    signal.addEventListener('abort', onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
    // Whichever promise lost the race must not become an unhandled rejection.
    promise.catch(() => undefined);
    aborted.catch(() => undefined);
  }
}

/** Throws the signal's reason as soon as the signal aborts. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  if (ms > 0) await sleep(ms, undefined, { signal }).catch(() => signal.throwIfAborted());
}

interface JoinedSignal {
  signal: AbortSignal;
  /** Call when the signal is no longer needed; it then stops following its sources. */
  release(): void;
}

/** The joined signal aborts with the first of `sources`, for the same reason. */
export function joinSignals(sources: readonly AbortSignal[]): JoinedSignal {
  const joined = new AbortController();
  const followed = sources.map((source) => ({ source, rise: () => joined.abort(source.reason) }));
  for (const { source, rise } of followed) {
    if (source.aborted) rise();
    else source.addEventListener('abort', rise, { once: true });
  }
  const release = (): void => {
    for (const { source, rise } of followed) source.removeEventListener('abort', rise);
  };
  return { signal: joined.signal, release };
}
