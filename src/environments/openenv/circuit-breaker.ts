// One breaker per server (R25): while it is open, calls fail at once and one poll for all asks whether the server is back. closed → (losses
// in a row) → open → (a health poll answers) → half-open → (a call answers) → closed, or open again. The episodes decide how long to wait
// for an outage: they know their run's `max_wait_s`.
import { Backoff } from '../../base/backoff.js';
export interface CircuitBreakerOptions {
  /** One health poll; false or a rejection means the server is down. */
  probe: (signal: AbortSignal) => Promise<boolean>;
  /** Transport losses in a row that open it. */
  threshold?: number;
}

export function createCircuitBreaker(options: CircuitBreakerOptions) {
  const { threshold = 5 } = options;
  const stopped = new AbortController();
  let state: 'closed' | 'open' | 'half-open' = 'closed';
  let losses = 0;
  const pauses = new Backoff([200, 2000]);
  let timer: NodeJS.Timeout | undefined;

  async function poll(): Promise<void> {
    const healthy = await options.probe(stopped.signal).catch(() => false);
    if (stopped.signal.aborted || state !== 'open') return;
    if (healthy) state = 'half-open';
    else schedule();
  }

  function schedule(): void {
    timer = setTimeout(() => void poll(), pauses.next());
    // A breaker that polls must not keep an idle process alive.
    timer.unref();
  }

  return {
    /** False while calls would only fail. */
    get allowsCalls() {
      return state !== 'open';
    },
    succeeded() {
      losses = 0;
      // Replies that were under way when the server went down do not close it; a health poll comes first.
      if (state === 'open') return;
      pauses.reset();
      state = 'closed';
    },
    lost() {
      losses++;
      if (state === 'open' || (state === 'closed' && losses < threshold)) return;
      state = 'open';
      schedule();
    },
    close() {
      stopped.abort();
      clearTimeout(timer);
    },
  };
}
