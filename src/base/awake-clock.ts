// Time in which this process ran. A stopped process, or one on a suspended machine, receives no answers: a deadline that passes meanwhile
// by any other clock is not a failure to answer in time.

const tickMs = 100;
/** A tick that comes later than this is late because nothing ran here. */
const longestTickMs = 2 * tickMs;

let awakeMs = 0;
let tickedAt = performance.now();
let ticker: NodeJS.Timeout | undefined;

/** Milliseconds; only differences mean anything. */
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

/** Calls `late` once so much awake time has passed and all input that had arrived was read. Returns a function that cancels it. */
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
    // Timers run before input: an answer may wait in its socket.
    else reading = setImmediate(late);
  };
  checkIn(ms);
  return () => {
    clearTimeout(timer);
    clearImmediate(reading);
  };
}

/** As `AbortSignal.timeout`. */
export function awakeLimit(ms: number): { signal: AbortSignal; callOff: () => void } {
  const limit = new AbortController();
  const callOff = awakeTimeout(
    () => limit.abort(new DOMException(`nothing within ${ms} ms`, 'TimeoutError')),
    ms,
  );
  return { signal: limit.signal, callOff };
}
