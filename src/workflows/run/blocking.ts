// What a run does when an activity fails for good: a few failures end it, the others wait for a person.
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

/** A record that a part of a step was made from may be another one now: the step begins again from its plan. */
export class RecordsChanged extends Error {}

/** A person who mends them may set records aside (R24). */
const failuresOfRecords: readonly string[] = ['UnreadableRecord', 'Diverged'] satisfies FatalFailure[];

/** After a resume: what the caller was given may name records that were set aside meanwhile. */
export function throwWhereRecordsChanged(failure: string): void {
  if (failuresOfRecords.includes(failure)) throw new RecordsChanged();
}

/**
 * Runs `attempt` until it succeeds; after a failure that no retry mends the run is `blocked` until somebody resumes it, after a
 * standstill only when that has lasted. `resumed` gets the type of that failure, and may throw in place of another attempt.
 */
export async function untilMended<T>(
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
      if (isCancellation(error) || error instanceof ApplicationFailure) throw error;
      const cause = error instanceof ActivityFailure ? error.cause : undefined;
      const type = cause instanceof ApplicationFailure ? (cause.type ?? 'Error') : 'Error';
      // Our own failures say all in their message; what caused them (a parser's words, say) is for the log.
      const told = cause instanceof ApplicationFailure ? cause.message : (rootCause(error) ?? String(error));
      // `temporal activity fail` takes no reason but the one that it is given.
      const reason = told === '' ? `${activityOf(error)} was failed by hand, and no reason was given` : told;
      if (endingFailures.includes(type)) {
        const details = cause instanceof ApplicationFailure ? (cause.details ?? []) : [];
        throw ApplicationFailure.create({ message: reason, type, nonRetryable: true, details });
      }
      await blockedUntilResumed(desk, progress, reason, remedyOf(type, cause));
      resumed(type);
    }
  }
}

/** The failure's own words where it has some: of one kind of failure some can be mended otherwise than others. */
function remedyOf(type: string, cause: unknown): string {
  const [detail] = cause instanceof ApplicationFailure ? (cause.details ?? []) : [];
  const { remedy } = (detail ?? {}) as Partial<FailureDetail>;
  return typeof remedy === 'string' ? remedy : (remedies[type as keyof typeof remedies] ?? 'Mend the cause');
}

function activityOf(error: unknown): string {
  return (error instanceof ActivityFailure ? error.activityId : undefined) ?? 'An activity';
}

/**
 * What fails in the same way again and again may pass: a driver that restarts, a neighbour that takes the memory. It is shown at
 * once, and tried again after pauses that grow, until it has lasted for the run's `block_after_s` (R27).
 */
class Patience {
  private since: number | null = null;
  private pauseMs: number = standstillPause.firstMs;
  private shown: { failure: NonNullable<RunStatus['failing']>; hide: () => void } | null = null;

  constructor(
    private readonly desk: ControlDesk,
    private readonly progress: RunProgress,
  ) {}

  /** Returns when it is time for another attempt; false for what no further attempt can mend, or has not mended. */
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

  /** It succeeded, or a person is asked, or it got on before it failed. */
  ends(): void {
    this.since = null;
    this.pauseMs = standstillPause.firstMs;
    this.shown?.hide();
    this.shown = null;
  }

  private show(reason: string, until: number): void {
    const time = new Date(until).toISOString().slice(0, 19).replace('T', ' ');
    const remedy =
      `It is tried again by itself, ever more seldom; the run is blocked where it still fails at ${time} UTC. ` +
      `To try at once: longhaul resume ${this.progress.status.run}`;
    if (this.shown) Object.assign(this.shown.failure, { reason, remedy });
    else {
      const failure = { reason, remedy };
      this.shown = { failure, hide: this.progress.failing(failure) };
    }
  }
}

/**
 * Waits for `resume`, or until it is `over` by itself. Several parts of a step may be blocked at once; one `resume` lets all of
 * them try again.
 */
export async function blockedUntilResumed(
  desk: ControlDesk,
  progress: RunProgress,
  reason: string,
  remedy: string,
  over: () => boolean = () => false,
): Promise<void> {
  const before = desk.resumes;
  const blocked = { reason, remedy: `${remedy}. Then: longhaul resume ${progress.status.run}` };
  log.warn('The run is blocked', blocked);
  await progress.whileBlocked(blocked, () => condition(() => desk.resumes > before || over()));
}
