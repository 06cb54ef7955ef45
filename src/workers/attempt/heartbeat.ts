// A heartbeat by timer that tells the truth: it stops when the work has made no progress for its limit, so that a wedged
// engine is noticed by the server's heartbeat time-out instead of being kept alive for ever.

export interface HeartbeatOptions {
  /** Sends one heartbeat; details are a hint for people. */
  send(details: unknown): void;
  intervalMs: number;
  /** Without progress for this long, the timer is silent. */
  limitMs: number;
}

export interface Heartbeat {
  /** The work has moved; the details go with the following heartbeats. */
  progress(details?: unknown): void;
  stop(): void;
}

/** The first heartbeat goes at once. */
export function startHeartbeat({ send, intervalMs, limitMs }: HeartbeatOptions): Heartbeat {
  let details: unknown;
  let movedAt = performance.now();
  const timer = setInterval(() => {
    if (performance.now() - movedAt <= limitMs) send(details);
  }, intervalMs);
  timer.unref();
  send(details);
  return {
    progress: (latest) => {
      movedAt = performance.now();
      if (latest !== undefined) details = latest;
    },
    stop: () => clearInterval(timer),
  };
}
