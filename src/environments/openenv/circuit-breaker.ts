// One breaker per server (R25): transport losses are waited out here and charged to nobody.
// closed → (losses in a row) → open → (a health poll answers) → half-open → (a call answers) → closed, or open again.
// `openForMs` counts from the first opening since a call last succeeded: a server that answers polls but no calls
// stays "down" for whoever waits.
export interface CircuitBreakerOptions {
  /** One health poll; false or a rejection means the server is down. */
  probe: (signal: AbortSignal) => Promise<boolean>;
  /** Transport losses in a row that open it. */
  threshold?: number;
  minBackoffMs?: number;
  maxBackoffMs?: number;
}

export interface CircuitBreaker {
  /** False while calls would only fail. */
  readonly allowsCalls: boolean;
  /** How long the server has been down, in ms; 0 while calls succeed. */
  openForMs(): number;
  succeeded(): void;
  lost(): void;
  /** True when calls may be tried; false when the deadline (ms since the epoch) passed first. Rejects when aborted. */
  waitUntilHealthy(signal: AbortSignal, deadline: number): Promise<boolean>;
  close(): void;
}

export function createCircuitBreaker(options: CircuitBreakerOptions): CircuitBreaker {
  const { threshold = 5, minBackoffMs = 200, maxBackoffMs = 5000 } = options;
  const stopped = new AbortController();
  const waiters = new Set<() => void>();
  let state: 'closed' | 'open' | 'half-open' = 'closed';
  let losses = 0;
  let backoffMs = minBackoffMs;
  let downSince: number | null = null;
  let timer: NodeJS.Timeout | undefined;

  function enter(next: typeof state): void {
    state = next;
    if (state !== 'open') for (const wake of [...waiters]) wake();
  }

  async function poll(): Promise<void> {
    const healthy = await options.probe(stopped.signal).catch(() => false);
    if (stopped.signal.aborted || state !== 'open') return;
    if (healthy) enter('half-open');
    else schedule();
  }

  function schedule(): void {
    timer = setTimeout(() => void poll(), backoffMs);
    // A breaker that polls must not keep a process alive that has nothing else to do.
    timer.unref();
    backoffMs = Math.min(maxBackoffMs, backoffMs * 2);
  }

  return {
    get allowsCalls() {
      return state !== 'open';
    },
    openForMs: () => (downSince === null ? 0 : Date.now() - downSince),
    succeeded() {
      losses = 0;
      // Replies that were on their way when the server went down do not close it; a health poll comes first.
      if (state === 'open') return;
      backoffMs = minBackoffMs;
      downSince = null;
      if (state !== 'closed') enter('closed');
    },
    lost() {
      losses++;
      if (state === 'open' || (state === 'closed' && losses < threshold)) return;
      downSince ??= Date.now();
      state = 'open';
      schedule();
    },
    async waitUntilHealthy(signal, deadline) {
      while (state === 'open') {
        signal.throwIfAborted();
        const leftMs = deadline - Date.now();
        if (leftMs <= 0 || stopped.signal.aborted) return false;
        await new Promise<void>((resolve) => {
          const wake = (): void => {
            clearTimeout(expiry);
            signal.removeEventListener('abort', wake);
            waiters.delete(wake);
            resolve();
          };
          const expiry = setTimeout(wake, Math.min(leftMs, 2 ** 31 - 1));
          signal.addEventListener('abort', wake, { once: true });
          waiters.add(wake);
        });
      }
      signal.throwIfAborted();
      return true;
    },
    close() {
      stopped.abort();
      clearTimeout(timer);
      for (const wake of [...waiters]) wake();
    },
  };
}
