// Attempts have no limit, but five that fail in the same way, seen by a living worker, will not pass by waiting (R27): the activity fails,
// and the workflow tries again for a while, on another node too.
//
// Counts live in this process: a worker that dies counts nothing, and its successor counts from 0.
import { isGrpcServiceError, ServiceError } from '@temporalio/client';
import { EngineError } from '../../engine/policy-engine.js';
import { EnvironmentError } from '../../environments/environment.js';
import { sha256Hex } from '../../base/sha256.js';

/** Failures of one execution of an activity in the same way, after which a retry has no reason to succeed. */
export const maxSameFailures = 5;

/** Executions whose counts are kept: more than ever run at once, and few enough to forget those that moved away. */
const maxExecutions = 1_000;

/** Error codes of sockets, of name lookups, and of folders on another machine. */
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
  /** By execution, then by what the failures have in common. */
  private readonly counts = new Map<string, Map<string, number>>();

  private readonly recordedExecutions = new Set<string>();

  /** Counts a failure of `execution`; returns how often it has failed in this way. 0 if waiting may fix it. */
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

  /** The execution has recorded progress: earlier failures no longer count. */
  recorded(execution: string): void {
    this.counts.delete(execution);
    this.recordedExecutions.add(execution);
  }

  /** True if it made any progress before it failed. */
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
  // The message of a dead engine holds its process id and its last log lines: no two are equal.
  const exited = error instanceof EngineError && error.code === 'EngineExited';
  return sha256Hex(`${error.name}\n${exited ? error.code : error.message}`);
}

/**
 * Losses of the store, of Temporal, of an environment or of a connection pass without help, however long they last. A full store is among
 * them: a person makes room.
 */
export function mendsItself(error: Error): boolean {
  if (['StoreUnavailable', 'StoreFull'].includes(error.name)) return true;
  if (error instanceof ServiceError || isGrpcServiceError(error)) return true;
  if (error instanceof EnvironmentError) return error.kind === 'unavailable';
  const { code } = error as NodeJS.ErrnoException;
  return typeof code === 'string' && lostConnection.includes(code);
}
