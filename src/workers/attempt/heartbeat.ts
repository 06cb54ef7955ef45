// Sends heartbeats by a timer, and stops when the work has made no progress for a time. So the server's heartbeat time-out notices an
// engine that hangs.

interface HeartbeatOptions {
  /** Sends one heartbeat; `details` are for people. */
  send(details: unknown): void;
  intervalMs: number;
  /** Time without progress after which the heartbeats stop, in milliseconds. */
  limitMs: number;
}

interface Heartbeat {
  /** Call when the work has made progress; the following heartbeats carry `details`. */
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
