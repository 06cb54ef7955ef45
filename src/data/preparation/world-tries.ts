// Plays a task in worlds of its own until one does not fail: a gate and a teacher's try are given up after the same failures.
import { setTimeout as sleep } from 'node:timers/promises';
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import {
  type Environment,
  type EnvironmentBackend,
  EnvironmentError,
} from '../../environments/environment.js';
import { type FailureLedger, failureOf } from '../../episode/failure-ledger.js';
import type { Task } from '../../spec/records/task.js';

/** Gates and tries play in the same world: the solution that a teacher finds is checked there. */
const seed = 1;
/** Charged failures after which the task is given up. */
const maxFailures = 3;
const pauseMs = 500;
const shownCharacters = 300;

/**
 * What `play` returns, or why no world could be played in. Throws the signal's reason, what `play` throws, and an `EnvironmentError` that is
 * not charged to the task: nothing is known of it then.
 */
export async function inWorld<Result>(
  backend: EnvironmentBackend,
  task: Task,
  { name, ledger }: { name: string; ledger: FailureLedger },
  play: (environment: Environment, tryNumber: number) => Promise<Result>,
  signal: AbortSignal,
): Promise<{ result: Result } | { reason: string }> {
  const episodeId = `${name}/${task.task_key}`.slice(0, 200);
  for (;;) {
    signal.throwIfAborted();
    let environment: Environment | undefined;
    try {
      const tryNumber = ledger.charged;
      environment = await backend.open(task, { seed, episodeId, tryNumber, alone: ledger.suspect }, signal);
      return { result: await play(environment, tryNumber) };
    } catch (error) {
      if (!(error instanceof EnvironmentError) || !ledger.add(failureOf(error, 'open'))) throw error;
      if (ledger.charged >= maxFailures)
        return {
          reason: `the environment failed ${ledger.charged} times: ${withoutKnownSecrets(error.message).slice(0, shownCharacters)}`,
        };
    } finally {
      await environment?.close();
    }
    await sleep(ledger.charged * pauseMs, undefined, { signal });
  }
}
