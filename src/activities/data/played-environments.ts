// Plays tasks on the environments of a dataset's spec, some at once on each.
import { readAsset } from '../../data/run-data.js';
import { type EnvironmentBackend, EnvironmentError } from '../../environments/environment.js';
import { environmentKind } from '../../environments/environment-kinds.js';
import { createSemaphore, type Semaphore } from '../../environments/semaphore.js';
import { FailureLedger } from '../../episode/failure-ledger.js';
import { outageClock } from '../../episode/outage-clock.js';
import { environmentOf } from '../../spec/environments/environment-schema.js';
import type { DatasetSpec } from '../../spec/dataset-spec.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import type { Digest } from '../../spec/records/parts.js';
import type { Task } from '../../spec/records/task.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import type { AttemptScope } from '../../policy/attempt-scope.js';

/** How long a server may be away. */
const maxWaitMs = 10 * 60_000;
const callTimeoutMs = 60_000;

export type DataScope = Pick<AttemptScope, 'signal' | 'progress' | 'recorded'>;

interface Stage {
  backend: EnvironmentBackend;
  isOver: () => boolean;
  /** The failures of this item's episode of that name, in all calls of `play` so far. */
  ledgerOf: (episode: string) => FailureLedger;
}

type Play<Item> = (item: Item, stage: Stage) => Promise<void>;

/**
 * Calls `play` for each item, at most `parallel` at once on an entry of the spec's environments. `play` may throw an `EnvironmentError` that
 * its ledger does not charge: it is called again once the server answers. Throws `EnvironmentsUnavailable` when the server has been away for 10 minutes.
 */
export async function playEach<Item extends { task: Task }>(
  { environments, parallel, store }: Pick<DatasetSpec, 'environments' | 'parallel'> & { store: ObjectStore },
  items: readonly Item[],
  scope: DataScope,
  play: Play<Item>,
): Promise<void> {
  // An entry may serve many environments; they share its places.
  const byEntry = new Map<EnvironmentSpec, Item[]>();
  for (const item of items) {
    const entry = requireEnvironment(environments, item.task.env_key);
    const own = byEntry.get(entry);
    if (own) own.push(item);
    else byEntry.set(entry, [item]);
  }
  // After a failure no further item begins. Those that are running end first, because the next attempt may follow in this process.
  const failures: unknown[] = [];
  const isOver = (): boolean => failures.length > 0;
  const played = [...byEntry].map(async ([entry, own]) => {
    const backend = openBackend(entry, parallel, store);
    const next = own.values();
    const player = async (): Promise<void> => {
      for (const item of next) {
        if (isOver()) return;
        await withPatience(item, backend, scope, isOver, play).catch((error: unknown) =>
          failures.push(error),
        );
      }
    };
    await Promise.all(Array.from({ length: Math.min(parallel, own.length) }, player));
    await backend.close();
  });
  await Promise.all(played);
  if (isOver()) throw failures[0];
}

function requireEnvironment(environments: readonly EnvironmentSpec[], envKey: string): EnvironmentSpec {
  const environment = environmentOf(environments, envKey);
  if (!environment) throw new Error(`the spec has no environment ${envKey}`);
  return environment;
}

/** The backend has its own places, because its sessions end with this activity. */
function openBackend(environment: EnvironmentSpec, parallel: number, store: ObjectStore): EnvironmentBackend {
  const placesOf = (_url: string, most = Infinity): Semaphore => createSemaphore(Math.min(parallel, most));
  const verifierCode = (sha256: Digest): Promise<string> => readAsset(store, sha256);
  return environmentKind(environment)
    .backend(environment, callTimeoutMs, { url: null, placesOf, verifierCode })
    .create();
}

async function withPatience<Item extends { task: Task }>(
  item: Item,
  backend: EnvironmentBackend,
  scope: DataScope,
  isOver: () => boolean,
  play: Play<Item>,
): Promise<void> {
  const { env_key } = item.task;
  const onWait = (): void => scope.progress({ waits_for: env_key });
  const outage = outageClock(backend, env_key, { maxWaitMs, onWait });
  const watched: EnvironmentBackend = {
    ...backend,
    async open(played, options, signal) {
      const environment = await backend.open(played, { ...options, onWait }, signal);
      outage.answered();
      return environment;
    },
  };
  const ledgers = new Map<string, FailureLedger>();
  const ledgerOf = (episode: string): FailureLedger => {
    const known = ledgers.get(episode);
    if (known) return known;
    const ledger = new FailureLedger([]);
    ledgers.set(episode, ledger);
    // A new episode begins, so the one before ended with an answer, even if with a failure.
    outage.answered();
    return ledger;
  };
  for (;;) {
    try {
      return await play(item, { backend: watched, isOver, ledgerOf });
    } catch (error) {
      if (!(error instanceof EnvironmentError) || isOver()) throw error;
      await outage.waitUntilHealthy(error, scope.signal);
    }
  }
}
