// What the attempt of an activity lends to work that takes long: a signal to stop, and callbacks that report progress.
import type { Recovery } from '../spec/records/attempt-records.js';

export interface AttemptScope {
  /** Stable name of the activity, e.g. `step-000120/collect`. */
  activity: string;
  /** `{workflow run id}.{attempt}`: unique among all tries of this activity by all executions. */
  attempt: string;
  /** The same for all tries of one execution of the activity; another one when the workflow schedules it again. */
  execution: string;
  /** Rises when this attempt must stop; its reason is what to throw. */
  signal: AbortSignal;
  /** Reports to the heartbeat that work goes on; details are a hint for people. */
  progress(details?: unknown): void;
  /** A record was written: the failures before it were no standstill (R27). */
  recorded(): void;
  /** The engine process that works for the attempt. */
  uses(incarnation: string): void;
  /** Called when the engine was made to hold a state. */
  restored(restored: Restored): void;
}

/** The part of a scope that work below the activities needs. */
export type Attended = Pick<AttemptScope, 'signal' | 'progress'> &
  Partial<Pick<AttemptScope, 'uses' | 'restored'>>;

/** What making an engine hold a state took. */
export type Restored = Required<Pick<Recovery, 'restore' | 'replay'>>;

/** Seconds, rounded to milliseconds, never negative: clocks of one process only go on. */
export function rounded(seconds: number): number {
  return Math.max(0, Math.round(seconds * 1000) / 1000);
}
