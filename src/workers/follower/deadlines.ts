// Every wait of a follower has a deadline. A signal asks late work to stop, but nobody waits for it.

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
  const own = new AbortController();
  const onOuter = (): void => own.abort(outer.reason);
  const late = new TooLate(`waited ${limitMs / 1000} s for ${what} without success`);
  const timer = setTimeout(() => own.abort(late), limitMs);
  outer.addEventListener('abort', onOuter, { once: true });
  try {
    return await new Promise<T>((resolve, reject) => {
      own.signal.addEventListener('abort', () => reject(own.signal.reason), { once: true });
      work(own.signal).then(resolve, reject);
    });
  } finally {
    clearTimeout(timer);
    outer.removeEventListener('abort', onOuter);
  }
}

/** Waits for `ms`. Returns at once, without an error, when `signal` aborts. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done, { once: true });
  });
}
