// Handles an activity that fails for good: a few failures end the run, all others block it until a person resumes it.
import {
  ActivityFailure,
  ApplicationFailure,
  condition,
  isCancellation,
  log,
  rootCause,
} from '@temporalio/workflow';
import type { FailureDetail, FatalFailure, RunStatus } from '../../activities/contracts.js';
import { standstillIn } from '../activity-failures.js';
import type { ControlDesk } from './control-desk.js';
import { endingFailures, remedies, standstillPause } from '../policies.js';
import type { RunProgress } from './run-progress.js';

/** A record that the step has already used may have changed: the step begins again from its plan. */
export class RecordsChanged extends Error {}

/** The samples of a step, which a resample discards while the step is paused or blocked (R24). */
export class StepSamples {
  private resampled = 0;

  constructor(private readonly desk: ControlDesk) {}

  /** Call when the step begins from its plan. */
  begin(): void {
    this.resampled = this.newest;
  }

  /** Throws `RecordsChanged` if the step was resampled since it began. */
  check(): void {
    if (this.newest !== this.resampled) throw new RecordsChanged();
  }

  private get newest(): number {
    return this.desk.control.resampled ?? 0;
  }
}

/** Failures that a person may fix by quarantining records (R24). */
const failuresOfRecords: readonly string[] = ['UnreadableRecord', 'Diverged'] satisfies FatalFailure[];

/** Call after a resume: values that the caller has read may name records that were quarantined in the meantime. */
export function throwWhereRecordsChanged(failure: string): void {
  if (failuresOfRecords.includes(failure)) throw new RecordsChanged();
}

/**
 * Runs `attempt` until it succeeds. A failure that no retry fixes, or a standstill that lasts too long, makes the run `blocked` until a
 * person resumes it. Then `resumed` is called with the failure's type; it may throw to prevent another attempt.
 */
export async function untilFixed<T>(
  desk: ControlDesk,
  progress: RunProgress,
  attempt: () => Promise<T>,
  resumed: (failure: string) => void = () => undefined,
): Promise<T> {
  const patience = new Patience(desk, progress);
  for (;;) {
    try {
      const done = await attempt();
      patience.ends();
      return done;
    } catch (error) {
      if (await patience.pausedFor(error)) continue;
      const isOver = error instanceof ApplicationFailure || error instanceof RecordsChanged;
      if (isOver || isCancellation(error)) throw error;
      const cause = error instanceof ActivityFailure ? error.cause : undefined;
      const type = cause instanceof ApplicationFailure ? (cause.type ?? 'Error') : 'Error';
      // The messages of our own failures are complete; their causes (such as a parser's message) belong in the log.
      const message =
        cause instanceof ApplicationFailure ? cause.message : (rootCause(error) ?? String(error));
      // `temporal activity fail` without a reason leaves the message empty.
      const reason = message === '' ? `${activityOf(error)} was failed by hand without a reason` : message;
      if (endingFailures.includes(type)) {
        const details = cause instanceof ApplicationFailure ? (cause.details ?? []) : [];
        throw ApplicationFailure.create({ message: reason, type, nonRetryable: true, details });
      }
      await blockedUntilResumed(desk, progress, reason, remedyOf(type, cause));
      resumed(type);
    }
  }
}

/** The failure's own remedy if it has one: failures of one kind may need different remedies. */
function remedyOf(type: string, cause: unknown): string {
  const [detail] = cause instanceof ApplicationFailure ? (cause.details ?? []) : [];
  const { remedy } = (detail ?? {}) as Partial<FailureDetail>;
  return typeof remedy === 'string' ? remedy : (remedies[type as keyof typeof remedies] ?? 'Fix the cause');
}

function activityOf(error: unknown): string {
  return (error instanceof ActivityFailure ? error.activityId : undefined) ?? 'An activity';
}

/**
 * Repeated failures may end by themselves: a driver restarts, another process frees memory. They are shown at once, and the work is tried
 * again after growing pauses until they have lasted for the run's `block_after_s` (R27).
 */
class Patience {
  private since: number | null = null;
  private pauseMs: number = standstillPause.firstMs;
  private shown: { failure: NonNullable<RunStatus['failing']>; hide: () => void } | null = null;

  constructor(
    private readonly desk: ControlDesk,
    private readonly progress: RunProgress,
  ) {}

  /** Pauses, and returns true if it is time for another attempt; false if the failure is not a standstill, or has lasted too long. */
  async pausedFor(error: unknown): Promise<boolean> {
    const standstill = standstillIn(error);
    if (!standstill || standstill.recorded) this.ends();
    if (!standstill) return false;
    this.since ??= Date.now();
    const until = this.since + this.progress.blockAfterMs;
    const leftMs = until - Date.now();
    if (leftMs <= 0) {
      this.ends();
      return false;
    }
    log.warn('A part of the run keeps failing', { reason: standstill.reason });
    this.show(standstill.reason, until);
    const { resumes } = this.desk;
    const pauseMs = Math.min(this.pauseMs, leftMs);
    this.pauseMs = Math.min(2 * this.pauseMs, standstillPause.longestMs);
    try {
      await condition(() => this.desk.resumes > resumes, pauseMs);
    } catch (cancelled) {
      this.ends();
      throw cancelled;
    }
    return true;
  }

  /** Forgets the failures: the work succeeded, or wrote a record before it failed, or the run asks a person now. */
  ends(): void {
    this.since = null;
    this.pauseMs = standstillPause.firstMs;
    this.shown?.hide();
    this.shown = null;
  }

  private show(reason: string, until: number): void {
    const time = new Date(until).toISOString().slice(0, 19).replace('T', ' ');
    const remedy =
      `The run tries it again by itself, after ever longer pauses, and is blocked if it still fails at ${time} UTC. ` +
      `To try at once: longhaul resume ${this.progress.status.run}`;
    if (this.shown) Object.assign(this.shown.failure, { reason, remedy });
    else {
      const failure = { reason, remedy };
      this.shown = { failure, hide: this.progress.failing(failure) };
    }
  }
}

/**
 * Waits for `resume`, or until `over` returns true. Several parts of a step may be blocked at once; one `resume` lets all of them try
 * again.
 */
export async function blockedUntilResumed(
  desk: ControlDesk,
  progress: RunProgress,
  reason: string,
  remedy: string,
  over: () => boolean = () => false,
): Promise<void> {
  const before = desk.resumes;
  const { run } = progress.status;
  const blocked = {
    reason,
    remedy: `${remedy.replaceAll(' NAME ', ` ${run} `)}. Then: longhaul resume ${run}`,
  };
  log.warn('The run is blocked', blocked);
  await progress.whileBlocked(blocked, () => condition(() => desk.resumes > before || over()));
}
