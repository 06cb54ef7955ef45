// A heartbeat by timer that stops when the work has made no progress for its limit, so that the server's heartbeat time-out detects a
// wedged engine instead of keeping it alive for ever.

export interface HeartbeatOptions {
  /** Sends one heartbeat; details are a hint for people. */
  send(details: unknown): void;
  intervalMs: number;
  /** Without progress for this long, the timer stops. */
  limitMs: number;
}

export interface Heartbeat {
  /** The work has progressed; the details go with the following heartbeats. */
  progress(details?: unknown): void;
  stop(): void;
}

/** The first heartbeat is sent at once. */
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
