// One circuit breaker per server (R25). While it is open, calls fail at once, and a single poll asks whether the server is back. closed →
// (several losses in a row) → open → (a health poll succeeds) → half-open → (a call succeeds) → closed, or open again. The episodes decide
// how long to wait for a server, because they know their run's `max_wait_s`.
import { Backoff } from '../../base/backoff.js';
interface CircuitBreakerOptions {
  /** One health poll; if it returns false or rejects, the server is down. */
  probe: (signal: AbortSignal) => Promise<boolean>;
  /** Number of lost connections in a row that open the breaker. */
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
    /** False while each call would fail. */
    get allowsCalls() {
      return state !== 'open';
    },
    succeeded() {
      losses = 0;
      // A reply that was on its way when the server went down does not close the breaker; a health poll must succeed first.
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
