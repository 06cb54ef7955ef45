// Plays tasks on the environments of a dataset's spec, some at once on each.
import { setTimeout as sleep } from 'node:timers/promises';
import { Backoff } from '../../base/backoff.js';
import { type EnvironmentBackend, EnvironmentError } from '../../environments/environment.js';
import { environmentKind } from '../../environments/environment-kinds.js';
import { createSemaphore, type Semaphore } from '../../environments/openenv/semaphore.js';
import { EnvironmentsUnavailable } from '../../episode/outage-clock.js';
import type { DatasetSpec } from '../../spec/dataset-spec.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import type { Task } from '../../spec/records/task.js';
import type { AttemptScope } from '../../policy/attended.js';

/** How long a server may be away. */
const maxWaitMs = 10 * 60_000;
const callTimeoutMs = 60_000;
const pauses = [100, 2_000] as const;

export type DataScope = Pick<AttemptScope, 'signal' | 'progress' | 'recorded'>;

/**
 * Calls `play` for each item, at most `gates.parallel` at once on an environment. `play` may throw an `EnvironmentError` while the server is
 * away: it is called again. Throws `EnvironmentsUnavailable` when the server has been away for 10 minutes.
 */
export async function playEach<Item extends { task: Task }>(
  { environments, gates }: DatasetSpec,
  items: readonly Item[],
  scope: DataScope,
  play: (item: Item, backend: EnvironmentBackend) => Promise<void>,
): Promise<void> {
  const byEnvironment = new Map<string, Item[]>();
  for (const item of items) {
    const own = byEnvironment.get(item.task.env_key);
    if (own) own.push(item);
    else byEnvironment.set(item.task.env_key, [item]);
  }
  // After a failure nothing more is begun; what is under way ends first, since the next attempt follows in this process.
  let failure: { error: unknown } | null = null;
  const isOver = (): boolean => failure !== null;
  const played = [...byEnvironment].map(async ([envKey, own]) => {
    const backend = openBackend(environmentOf(environments, envKey), gates.parallel);
    const next = own.values();
    const player = async (): Promise<void> => {
      for (const item of next) {
        if (isOver()) return;
        await withPatience(item.task, scope, isOver, () => play(item, backend)).catch((error: unknown) => {
          failure ??= { error };
        });
      }
    };
    await Promise.all(Array.from({ length: Math.min(gates.parallel, own.length) }, player));
    await backend.close();
  });
  await Promise.all(played);
  if (failure) throw (failure as { error: unknown }).error;
}

function environmentOf(environments: readonly EnvironmentSpec[], envKey: string): EnvironmentSpec {
  const environment = environments.find(({ env_key }) => env_key === envKey);
  if (!environment) throw new Error(`the spec has no environment ${envKey}`);
  return environment;
}

/** Its own places, since its sessions end with this activity. */
function openBackend(environment: EnvironmentSpec, parallel: number): EnvironmentBackend {
  const placesOf = (_url: string, most = Infinity): Semaphore => createSemaphore(Math.min(parallel, most));
  return environmentKind(environment).backend(environment, callTimeoutMs, { url: null, placesOf }).create();
}

/** Repeats what fails because the server is away; throws `EnvironmentsUnavailable` when it has been away for too long. */
async function withPatience<T>(
  task: Task,
  scope: DataScope,
  isOver: () => boolean,
  work: () => Promise<T>,
): Promise<T> {
  const backoff = new Backoff(pauses);
  const until = Date.now() + maxWaitMs;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof EnvironmentError) || isOver()) throw error;
      if (Date.now() > until) {
        const minutes = maxWaitMs / 60_000;
        throw new EnvironmentsUnavailable(
          `the environment of ${task.task_key} was away for ${minutes} minutes: ${error.message}`,
          { cause: error },
        );
      }
      scope.progress({ waits_for: task.env_key });
      await sleep(backoff.next(), undefined, { signal: scope.signal });
    }
  }
}
