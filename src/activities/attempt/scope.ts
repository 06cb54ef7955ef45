// What every activity needs of the Temporal attempt that runs it.
import { Context } from '@temporalio/activity';
import { currentAccount, type Restored } from './attempt-account.js';
import { RepeatedFailures } from './repeated-failures.js';

/** Of all activities in this process. */
export const repeatedFailures = new RepeatedFailures();

export interface AttemptScope {
  /** Stable name of the activity, e.g. `step-000120/collect`. */
  activity: string;
  /** `{workflow run id}.{attempt}`: unique among all tries of this activity by all executions. */
  attempt: string;
  /** The same for all tries of one execution of the activity, another one when the workflow asks for it again. */
  execution: string;
  /** Rises when this attempt must stop; its reason is what to throw. */
  signal: AbortSignal;
  /** Tells the heartbeat that work goes on; details are a hint for people. */
  progress(details?: unknown): void;
  /** A record was written: the failures before it were no standstill (R27). */
  recorded(): void;
  /** The engine process that works for it. */
  uses(incarnation: string): void;
  /** The engine was made to hold a state. */
  restored(restored: Restored): void;
}

/** What an attempt lends to work that may take long: when to stop, and whom to tell that it goes on. */
export type Attended = Pick<AttemptScope, 'signal' | 'progress'> &
  Partial<Pick<AttemptScope, 'uses' | 'restored'>>;

export function currentScope(): AttemptScope {
  const context = Context.current();
  const account = currentAccount();
  const { activityId, attempt, scheduledTimestampMs, workflowExecution } = context.info;
  const runId = workflowExecution?.runId ?? 'standalone';
  const execution = `${runId}/${activityId}/${scheduledTimestampMs}`;
  return {
    activity: activityId,
    attempt: `${runId}.${attempt}`,
    execution,
    signal: context.cancellationSignal,
    progress: (details) => context.heartbeat(details),
    recorded: () => repeatedFailures.recorded(execution),
    uses: (incarnation) => account.uses(incarnation),
    restored: (restored) => account.restored(restored),
  };
}
