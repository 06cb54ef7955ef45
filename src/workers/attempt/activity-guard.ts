// Wraps every activity of our workers: it keeps the task token on disk, allows one attempt at a time, and sends heartbeats while the
// activity makes progress. The activity sees only its Temporal context: its signal, and `heartbeat` to report progress.
import { asyncLocalStorage, type Context } from '@temporalio/activity';
import type {
  ActivityExecuteInput,
  ActivityInboundCallsInterceptor,
  ActivityInterceptorsFactory,
  Next,
} from '@temporalio/worker';
import { accountOf, type AttemptAccount } from '../../activities/attempt/attempt-account.js';
import { AttemptGate } from './attempt-gate.js';
import { joinSignals } from '../../base/abortable.js';
import type { OpenActivities } from './open-activities.js';

interface GuardOptions {
  open: OpenActivities;
  /** Aborts when this worker leaves; its attempts fail with the signal's reason. */
  cutOff?: AbortSignal;
  /** Time without progress after which the heartbeat stops, in milliseconds. */
  progressLimitMs?: number;
}

/** Several heartbeats fit into the heartbeat time-out. Workers send each to the server (`maxHeartbeatThrottleInterval`). */
export const heartbeatIntervalMs = 2_000;
/** Longer than any engine call, and than any part of a store transfer: these report no progress while they run. */
const defaultProgressLimitMs = 20 * 60_000;

/** All workers of a process that may get the same activity must share the returned guard, which holds one gate. */
export function guardActivities({
  open,
  cutOff,
  progressLimitMs = defaultProgressLimitMs,
}: GuardOptions): ActivityInterceptorsFactory {
  const gate = new AttemptGate();
  return (context) => ({ inbound: guard(context, gate, open, progressLimitMs, cutOff ? [cutOff] : []) });
}

function guard(
  context: Context,
  gate: AttemptGate,
  open: OpenActivities,
  limitMs: number,
  endings: AbortSignal[],
): ActivityInboundCallsInterceptor {
  const { workflowExecution, activityId, base64TaskToken } = context.info;
  const activity = `${workflowExecution?.workflowId ?? 'standalone'}/${activityId}`;
  return {
    async execute(input: ActivityExecuteInput, next: Next<ActivityInboundCallsInterceptor, 'execute'>) {
      const close = open.open({ activity, taskToken: base64TaskToken });
      let account: AttemptAccount | null = null;
      // Until this attempt has its own account, the heartbeats repeat the previous attempt's account.
      const send = (details: unknown): void => context.heartbeat(withAccount(details, account, context));
      const heartbeat = startHeartbeat({
        send,
        intervalMs: heartbeatIntervalMs,
        limitMs,
      });
      try {
        return await gate.enter(activity, async (superseded, progress) => {
          const { signal, release } = joinSignals([context.cancellationSignal, superseded, ...endings]);
          const guarded = guardedContext(context, signal, (details) => {
            progress();
            heartbeat.progress(details);
            send(details);
          });
          account = accountOf(guarded);
          try {
            return await asyncLocalStorage.run(guarded, () => next(input));
          } finally {
            release();
          }
        });
      } finally {
        heartbeat.stop();
        close();
      }
    },
  };
}

/** Heartbeat details with the account. If this process dies, the next attempt reads the account; the rest is for people. */
function withAccount(details: unknown, account: AttemptAccount | null, { info }: Context): unknown {
  const ft = account?.reported ?? (info.heartbeatDetails as { ft?: unknown } | undefined)?.ft;
  if (ft === undefined) return details;
  return typeof details === 'object' ? { ...details, ft } : { details, ft };
}

/** The SDK's context with another signal, and with a `heartbeat` that counts as progress. */
function guardedContext(
  context: Context,
  cancellationSignal: AbortSignal,
  heartbeat: (details?: unknown) => void,
): Context {
  const cancelled = new Promise<never>((_, reject) => {
    const cancel = (): void => reject(cancellationSignal.reason as Error);
    if (cancellationSignal.aborted) cancel();
    else cancellationSignal.addEventListener('abort', cancel, { once: true });
  });
  // If nobody awaits `cancelled`, its rejection must not count as unhandled.
  cancelled.catch(() => undefined);
  return Object.create(context, {
    cancellationSignal: { value: cancellationSignal },
    cancelled: { value: cancelled },
    heartbeat: { value: heartbeat },
  }) as Context;
}

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
