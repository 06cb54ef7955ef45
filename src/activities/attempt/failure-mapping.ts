// Maps errors to Temporal failures. Fatal errors keep their type and are not retried; all others can be retried until the same failure has
// occurred too often.
import { ApplicationFailure, CancelledFailure } from '@temporalio/common';
import { type FailureDetail, fatalFailures, type FatalFailure, type Standstill } from '../contracts.js';
import { censored } from '../../base/known-secrets.js';
import { maxSameFailures } from './repeated-failures.js';
import { currentScope, repeatedFailures } from './scope.js';
import { type AttemptScope } from '../../policy/attempt-scope.js';
import { EngineError } from '../../engine/policy-engine.js';
import { EnvironmentsUnavailable } from '../../episode/outage-clock.js';
import { UnreadableRecord } from '../../store/record-errors.js';

/** Characters of a message that go into the workflow's history. */
const longestMessage = 2_000;

const unfitEngine: readonly EngineError['code'][] = ['VersionMismatch', 'EngineMissing', 'OtherNumerics'];

type Activity<I, O> = (input: I) => Promise<O>;

/**
 * If the activity was cancelled, throws the cancellation's reason. An AbortError would reach the server as a cancellation that nobody
 * requested, and the attempt would stay open until its heartbeat timed out.
 */
export function withFailures<I, O>(activity: Activity<I, O>): Activity<I, O> {
  return async (input) => {
    const scope = currentScope();
    try {
      const answer = await activity(input);
      repeatedFailures.forget(scope.execution);
      return answer;
    } catch (error) {
      const { signal } = scope;
      if (signal.aborted)
        throw signal.reason instanceof Error ? signal.reason : new CancelledFailure('cancelled');
      throw censored(unlessRepeated(mapped(error), scope));
    }
  };
}

/** The failure itself, or `NoProgress` if the activity has failed in the same way too often (R27). */
function unlessRepeated(failure: Error, { activity, execution }: AttemptScope): Error {
  const final = failure instanceof ApplicationFailure && failure.nonRetryable === true;
  const count = final ? 0 : repeatedFailures.count(execution, failure);
  if (!final && count < maxSameFailures) return failure;
  const standstill: Standstill = { recorded: repeatedFailures.hasRecorded(execution) };
  repeatedFailures.forget(execution);
  if (final) return failure;
  return ApplicationFailure.nonRetryable(
    `${activity} failed ${count} times in the same way: ${failure.message.slice(0, longestMessage)}`,
    'NoProgress' satisfies FatalFailure,
    standstill,
  );
}

function mapped(error: unknown): Error {
  if (error instanceof ApplicationFailure) return error;
  if (!(error instanceof Error)) return new Error(String(error));
  if ((fatalFailures as readonly string[]).includes(error.name)) {
    return ApplicationFailure.create({
      message: error.message,
      type: error.name,
      nonRetryable: true,
      cause: error,
      ...((error instanceof UnreadableRecord || error instanceof EnvironmentsUnavailable) &&
      error.remedy !== null
        ? { details: [{ remedy: error.remedy } satisfies FailureDetail] }
        : {}),
    });
  }
  // A retry would use the same engine program, so it cannot succeed.
  if (error instanceof EngineError && unfitEngine.includes(error.code)) {
    return ApplicationFailure.create({
      message: error.message,
      type: 'EngineUnfit' satisfies FatalFailure,
      nonRetryable: true,
      cause: error,
    });
  }
  return error;
}
