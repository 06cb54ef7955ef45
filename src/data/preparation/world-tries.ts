// Plays a task in fresh worlds until one of them does not fail. Gates and a teacher's tries are given up after the same number of failures.
import { setTimeout as sleep } from 'node:timers/promises';
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import {
  type Environment,
  type EnvironmentBackend,
  EnvironmentError,
} from '../../environments/environment.js';
import { type FailureLedger, failureOf } from '../../episode/failure-ledger.js';
import type { Task } from '../../spec/records/task.js';

/** Gates and tries use the same seed, so that a teacher's solution is checked in the world in which it was found. */
const seed = 1;
/** Charged failures after which the task is given up. */
const maxFailures = 3;
const pauseMs = 500;
const shownCharacters = 300;

/**
 * Returns what `play` returns, or why the task was given up. Throws the signal's reason, what `play` throws, or an `EnvironmentError` that is
 * not charged to the task; the task's result is then unknown.
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
