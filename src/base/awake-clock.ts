// A clock that counts only the time in which this process ran. While a process is stopped, or its machine is suspended, the process can
// receive no answers. A deadline that passes meanwhile is not the other side's failure.

const tickMs = 100;
/** If a tick is later than this, the process did not run in between; the rest of the gap is not counted. */
const longestTickMs = 2 * tickMs;

let awakeMs = 0;
let tickedAt = performance.now();
let ticker: NodeJS.Timeout | undefined;

/** Milliseconds; only the difference of two readings has a meaning. */
export function awakeNow(): number {
  if (ticker) tick();
  else {
    tickedAt = performance.now();
    ticker = setInterval(tick, tickMs);
    ticker.unref();
  }
  return awakeMs;
}

function tick(): void {
  const now = performance.now();
  awakeMs += Math.min(now - tickedAt, longestTickMs);
  tickedAt = now;
}

/** Calls `late` after `ms` of awake time, when all input that arrived before has been read. Returns a function that cancels the call. */
export function awakeTimeout(late: () => void, ms: number): () => void {
  const until = awakeNow() + ms;
  let timer: NodeJS.Timeout | undefined;
  let reading: NodeJS.Immediate | undefined;
  const checkIn = (delayMs: number): void => {
    timer = setTimeout(check, Math.ceil(delayMs));
    // The time limit alone must not keep the process alive.
    timer.unref();
  };
  const check = (): void => {
    const leftMs = until - awakeNow();
    if (leftMs > 0) checkIn(leftMs);
    // Timers run before input: let the process read an answer that may wait in its socket.
    else reading = setImmediate(late);
  };
  checkIn(ms);
  return () => {
    clearTimeout(timer);
    clearImmediate(reading);
  };
}

/** Like `AbortSignal.timeout`, in awake time. `callOff` cancels it. */
export function awakeLimit(ms: number): { signal: AbortSignal; callOff: () => void } {
  const limit = new AbortController();
  const callOff = awakeTimeout(
    () => limit.abort(new DOMException(`nothing within ${ms} ms`, 'TimeoutError')),
    ms,
  );
  return { signal: limit.signal, callOff };
}
