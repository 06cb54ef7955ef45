// The number of attempts is not limited. But if a living worker sees an activity fail five times in the same way, waiting will not help
// (R27): the activity fails, and the workflow tries again for a while, also on another node.
//
// The counts are kept in this process. The death of a worker is not counted, and its successor starts from 0.
import { isGrpcServiceError, ServiceError } from '@temporalio/client';
import { EngineError } from '../../engine/policy-engine.js';
import type { EnvironmentError } from '../../environments/environment.js';
import { sha256Hex } from '../../base/sha256.js';

/** After this many equal failures of one execution, a further retry is not expected to succeed. */
export const maxSameFailures = 5;

/**
 * At most this many executions have a count: more than ever run at once. The oldest execution is dropped first, because it may have moved
 * to another node.
 */
const maxExecutions = 1_000;

/** Error codes of sockets, name lookups, and network folders. */
const lostConnection = [
  'ECONNABORTED',
  'ECONNREFUSED',
  'ECONNRESET',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'EIO',
  'ENETUNREACH',
  'ENOTCONN',
  'ENOTFOUND',
  'EPIPE',
  'ESTALE',
  'ETIMEDOUT',
];

export class RepeatedFailures {
  /** By execution, then by kind of failure. */
  private readonly counts = new Map<string, Map<string, number>>();

  private readonly recordedExecutions = new Set<string>();

  /** Counts a failure of `execution` and returns how often it has failed in the same way. Returns 0 if waiting may fix it. */
  count(execution: string, error: Error): number {
    if (mendsItself(error)) return 0;
    const counts = this.counts.get(execution) ?? new Map<string, number>();
    const way = wayOf(error);
    const count = (counts.get(way) ?? 0) + 1;
    this.counts.set(execution, counts.set(way, count));
    const oldest = this.counts.keys().next().value;
    if (this.counts.size > maxExecutions && oldest !== undefined) this.forget(oldest);
    return count;
  }

  /** The execution wrote a record: earlier failures no longer count. */
  recorded(execution: string): void {
    this.counts.delete(execution);
    this.recordedExecutions.add(execution);
  }

  hasRecorded(execution: string): boolean {
    return this.recordedExecutions.has(execution);
  }

  /** The execution has ended. */
  forget(execution: string): void {
    this.counts.delete(execution);
    this.recordedExecutions.delete(execution);
  }
}

function wayOf(error: Error): string {
  // The message of `EngineExited` contains a process id and log lines, so it differs each time; compare only its code.
  const exited = error instanceof EngineError && error.code === 'EngineExited';
  return sha256Hex(`${error.name}\n${exited ? error.code : error.message}`);
}

/**
 * True if waiting can fix the error: the store, Temporal, an environment or a connection is unavailable, for however long. A full store
 * counts too, because a person can make room.
 */
export function mendsItself(error: Error): boolean {
  if (['StoreUnavailable', 'StoreFull'].includes(error.name)) return true;
  if (error instanceof ServiceError || isGrpcServiceError(error)) return true;
  // By name, because an error that came from a thread has lost its class.
  if (error.name === 'EnvironmentError') return (error as EnvironmentError).kind === 'unavailable';
  const { code } = error as NodeJS.ErrnoException;
  return typeof code === 'string' && lostConnection.includes(code);
}
