// What every activity needs of the Temporal attempt that runs it.
import { Context } from '@temporalio/activity';

export interface AttemptScope {
  /** Stable name of the activity, e.g. `step-000120/collect`. */
  activity: string;
  /** `{workflow run id}.{attempt}`: unique among all tries of this activity by all executions. */
  attempt: string;
  /** Rises when this attempt must stop; its reason is what to throw. */
  signal: AbortSignal;
  /** Tells the heartbeat that work goes on; details are a hint for people. */
  progress(details?: unknown): void;
}

export function currentScope(): AttemptScope {
  const context = Context.current();
  const { activityId, attempt, workflowExecution } = context.info;
  return {
    activity: activityId,
    attempt: `${workflowExecution?.runId ?? 'standalone'}.${attempt}`,
    signal: context.cancellationSignal,
    progress: (details) => context.heartbeat(details),
  };
}
