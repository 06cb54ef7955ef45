// The wait for an environment that is down (R25).
import { setTimeout as sleep } from 'node:timers/promises';
import { abortable } from '../base/abortable.js';
import { awakeNow } from '../base/awake-clock.js';
import { Backoff } from '../base/backoff.js';
import type { EnvironmentBackend, EnvironmentError } from '../environments/environment.js';

/** An environment that is down. */
export interface Outage {
  reason: string;
  /** End of the wait for it, in milliseconds since 1970. */
  until: number;
}

export interface OutageOptions {
  /** Longest wait for an environment that is down. */
  maxWaitMs: number;
  /** Called repeatedly while the environment is down, so that the attempt still counts as alive. */
  onWait?: (outage: Outage) => void;
  /** Called when the environment answers again. */
  onAnswer?: () => void;
}

/** Thrown if the environment is down for longer than `maxWaitMs` (R25). */
export class EnvironmentsUnavailable extends Error {
  /** What a person must do; null if it is to start the server. */
  readonly remedy: string | null;

  constructor(
    message: string,
    { remedy = null, ...options }: ErrorOptions & { remedy?: string | null } = {},
  ) {
    super(message, options);
    this.name = 'EnvironmentsUnavailable';
    this.remedy = remedy;
  }
}

/** The error if the server answers, but other sessions have held all its places during the whole wait; null for another `cause`. */
export function heldPlaces(
  envKey: string,
  waitedS: number,
  cause: EnvironmentError,
): EnvironmentsUnavailable | null {
  if (cause.reason !== 'capacity') return null;
  return new EnvironmentsUnavailable(
    `All places of the environment server of ${envKey} have been held by other sessions for ${Math.round(waitedS)} s, ` +
      `and none was freed (${cause.message})`,
    {
      cause,
      remedy:
        'Close the clients that hold the places (another run, a notebook, a lost machine), or restart the environment server, which ends ' +
        'their sessions; or give it more places (max_concurrent_envs)',
    },
  );
}

const minPauseMs = 100;
const maxPauseMs = 2000;

/**
 * Measures how long the environment has been down: since its first failure after its last answer. Time in which this process was stopped
 * does not count.
 */
export function outageClock(
  backend: Pick<EnvironmentBackend, 'healthy'>,
  envKey: string,
  { maxWaitMs, onWait, onAnswer }: OutageOptions,
) {
  let downSince: number | null = null;
  const pauses = new Backoff([minPauseMs, maxPauseMs]);
  return {
    answered(): void {
      if (downSince !== null) onAnswer?.();
      downSince = null;
      pauses.reset();
    },
    async waitUntilHealthy(cause: EnvironmentError, signal: AbortSignal): Promise<void> {
      downSince ??= awakeNow();
      for (;;) {
        const leftMs = downSince + maxWaitMs - awakeNow();
        if (leftMs <= 0) {
          throw (
            heldPlaces(envKey, maxWaitMs / 1000, cause) ??
            new EnvironmentsUnavailable(
              `The environment of ${envKey} has been down for ${Math.round(maxWaitMs / 1000)} s ` +
                `(${cause.message}). Make sure that it answers, then resume the run`,
              { cause },
            )
          );
        }
        onWait?.({ reason: cause.message, until: Date.now() + leftMs });
        await abortable(sleep(Math.min(pauses.next(), leftMs)), signal);
        if (await abortable(backend.healthy(), signal)) return;
      }
    },
  };
}
