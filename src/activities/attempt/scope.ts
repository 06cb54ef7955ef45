// The parts of Temporal's activity context that every activity uses.
import { Context } from '@temporalio/activity';
import type { AttemptScope } from '../../policy/attempt-scope.js';
import { currentAccount } from './attempt-account.js';
import { RepeatedFailures } from './repeated-failures.js';

/** Failure counts of all activities in this process. */
export const repeatedFailures = new RepeatedFailures();

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
