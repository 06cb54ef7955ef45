// Errors of the parts below become Temporal failures: fatal ones by type, everything else retryable as it is.
import { ApplicationFailure, CancelledFailure } from '@temporalio/common';
import { fatalFailures, type FatalFailure } from './contracts.js';
import { currentScope } from './scope.js';
import { EngineError } from '../engine/policy-engine.js';

type Activity<I, O> = (input: I) => Promise<O>;

/**
 * On abort the cancellation reason itself is thrown: an AbortError would be reported as a cancellation that nobody asked
 * for, and the attempt would dangle until its heartbeat runs out.
 */
export function withFailures<I, O>(activity: Activity<I, O>): Activity<I, O> {
  return async (input) => {
    try {
      return await activity(input);
    } catch (error) {
      const { signal } = currentScope();
      if (signal.aborted)
        throw signal.reason instanceof Error ? signal.reason : new CancelledFailure('cancelled');
      throw mapped(error);
    }
  };
}

function mapped(error: unknown): Error {
  if (error instanceof ApplicationFailure || !(error instanceof Error)) return error as Error;
  if ((fatalFailures as readonly string[]).includes(error.name)) {
    return ApplicationFailure.create({
      message: error.message,
      type: error.name,
      nonRetryable: true,
      cause: error,
    });
  }
  // Every retry would start the same program.
  if (error instanceof EngineError && (error.code === 'VersionMismatch' || error.code === 'EngineMissing')) {
    return ApplicationFailure.create({
      message: error.message,
      type: 'EngineUnfit' satisfies FatalFailure,
      nonRetryable: true,
      cause: error,
    });
  }
  return error;
}
