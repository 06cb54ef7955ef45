// What an activity's attempt provides for long work: a signal to stop, and callbacks that report progress.
import type { Recovery } from '../spec/records/attempt-records.js';

export interface AttemptScope {
  /** Stable name of the activity, e.g. `step-000120/collect`. */
  activity: string;
  /** `{workflow run id}.{attempt}`: unique among all attempts of this activity in all workflow executions. */
  attempt: string;
  /** The same for all attempts of one execution of the activity. It changes when the workflow schedules the activity again. */
  execution: string;
  /** Aborts when this attempt must stop; the work then throws the signal's reason. */
  signal: AbortSignal;
  /** Tells the heartbeat that work continues; people can see the details. */
  progress(details?: unknown): void;
  /** Call after a record was written: earlier failures no longer count towards `NoProgress` (R27). */
  recorded(): void;
  /** Names the engine process that works for the attempt. */
  uses(incarnation: string): void;
  /** Call after a state was restored in the engine. */
  restored(restored: Restored): void;
}

/** The part of a scope that code below the activities needs. */
export type WorkContext = Pick<AttemptScope, 'signal' | 'progress'> &
  Partial<Pick<AttemptScope, 'uses' | 'restored'>>;

/** The cost of restoring a state in the engine. */
export type Restored = Required<Pick<Recovery, 'restore' | 'replay'>>;

/** Rounds seconds to milliseconds; negative values become 0, because times in one process cannot run backwards. */
export function rounded(seconds: number): number {
  return Math.max(0, Math.round(seconds * 1000) / 1000);
}
