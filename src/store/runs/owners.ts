// Exactly one workflow execution drives a run: the author of the newest owner record (R20).
import type { OwnerRecord, RunRecord } from '../../spec/records/run-records.js';
import type { EnvironmentSpec, RunSpec } from '../../spec/run-spec.js';
import { isOnServer } from '../../spec/spec-paths.js';
import { ownersFolder, sequenceKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { appendSequence, requireRecord, sequenceNumbers } from '../records/records.js';
import { OwnerChanged, RunOwned } from '../record-errors.js';

/** What the recorded Temporal server says about an owner's workflow; `unknown`: it answers, but has no such workflow. */
export type OwnerState = 'open' | 'closed' | 'unknown' | 'unreachable';

interface OwnerIdentity {
  /** Address of the Temporal server. */
  address: string;
  clusterId: string;
  namespace: string;
  workflowId: string;
  firstExecutionRunId: string;
}

/**
 * Writes the next owner record and returns its number. Unless `takeOver`, throws `RunOwned` while another owner is open or its server
 * cannot be reached. A claimant that loses a race checks the winner in the same way.
 */
export async function claimRun(
  store: ObjectStore,
  run: string,
  claimant: OwnerIdentity &
    Pick<RunSpec, 'budget' | 'tracking' | 'slack'> & {
      by?: string;
      environmentUrls?: Record<string, string | null>;
    },
  ownerState: (owner: OwnerRecord) => Promise<OwnerState>,
  options: { takeOver?: boolean } = {},
): Promise<number> {
  const { address, clusterId, namespace, workflowId, firstExecutionRunId } = claimant;
  const { by, environmentUrls, budget, tracking, slack } = claimant;
  const record = await appendSequence(store, ownersFolder(run), 'owner', async (n, existing) => {
    const newest = existing.at(-1);
    if (newest && !options.takeOver && !sameExecution(newest, claimant)) {
      const state = await ownerState(newest);
      if (state === 'open' || state === 'unreachable') throw new RunOwned(refusal(run, newest, state));
    }
    return {
      schema: 'longhaul.owner/3',
      n,
      address,
      clusterId,
      namespace,
      workflowId,
      firstExecutionRunId,
      observed: {
        at: new Date().toISOString(),
        by: by ?? `pid ${process.pid}`,
        ...(environmentUrls ? { environment_urls: environmentUrls } : {}),
        ...(budget ? { budget } : {}),
        ...(tracking ? { tracking } : {}),
        ...(slack ? { slack } : {}),
      },
    };
  });
  return record.n;
}

/** The newest owner's record; null before the first claim. */
export async function readOwner(store: ObjectStore, run: string): Promise<OwnerRecord | null> {
  const newest = (await sequenceNumbers(store, ownersFolder(run))).at(-1);
  return newest === undefined ? null : requireRecord(store, sequenceKey(ownersFolder(run), newest), 'owner');
}

/** Throws `OwnerChanged` unless the execution that wrote owner `n` is the newest (R20). Every activity calls it first. */
export async function checkOwner(store: ObjectStore, run: string, n: number): Promise<void> {
  const key = (number: number): string => sequenceKey(ownersFolder(run), number);
  // Sequences have no gaps: if the next number is free, this owner is the newest.
  if (!(await store.head(key(n + 1)))) return;
  const newest = (await sequenceNumbers(store, ownersFolder(run))).at(-1) ?? n + 1;
  const [mine, last] = await Promise.all([
    requireRecord(store, key(n), 'owner'),
    requireRecord(store, key(newest), 'owner'),
  ]);
  // A late attempt of the same execution's claim may have written the next number; that is no change of owner.
  if (!sameExecution(mine, last)) throw new OwnerChanged(run, n, newest);
}

function sameExecution(a: OwnerIdentity, b: OwnerIdentity): boolean {
  return (
    a.clusterId === b.clusterId &&
    a.namespace === b.namespace &&
    a.workflowId === b.workflowId &&
    a.firstExecutionRunId === b.firstExecutionRunId
  );
}

function refusal(run: string, owner: OwnerRecord, state: 'open' | 'unreachable'): string {
  const who =
    `workflow ${owner.workflowId} (first run id ${owner.firstExecutionRunId}, namespace ${owner.namespace}) ` +
    `on ${owner.address}`;
  return state === 'open'
    ? `run ${run} is driven by ${who}, which is still open: follow or cancel that one, or start with --take-over`
    : `run ${run} belongs to ${who}, which cannot be reached: start that server and try again, ` +
        'or use --take-over if that workflow is gone for good';
}

/** The run's environments with their current addresses: each start of the run may name a new address, as a server may have moved. */
export async function environmentsNow(store: ObjectStore, record: RunRecord): Promise<EnvironmentSpec[]> {
  return (await specAtServersNow(store, record)).environments;
}

/** The run's spec with the server addresses of its last start. */
export async function specAtServersNow(store: ObjectStore, { run, spec }: RunRecord): Promise<RunSpec> {
  return atServers(spec, (await readOwner(store, run))?.observed.environment_urls ?? {});
}

/** `urls`: address of each environment; null for the server of the node's stack. Tasks that a moved server lists move along. */
export function atServers(spec: RunSpec, urls: Readonly<Record<string, string | null>>): RunSpec {
  const environments = spec.environments.map((environment) => {
    const url = urls[environment.env_key];
    if (url === undefined) return environment;
    const { url: _url, ...elsewhere } = environment;
    return url === null ? elsewhere : { ...elsewhere, url };
  });
  const { tasks } = spec.data;
  const lister =
    tasks !== undefined && isOnServer(tasks) ? new URL(tasks.slice('openenv+'.length)).origin : null;
  const moved = spec.environments.find(
    ({ env_key, url }) => url !== undefined && urls[env_key] && new URL(url).origin === lister,
  );
  const now = moved && urls[moved.env_key];
  if (!tasks || !lister || !now) return { ...spec, environments };
  const elsewhere = tasks.replace(/^openenv\+https?:\/\/[^/?]+/, `openenv+${new URL(now).origin}`);
  return { ...spec, environments, data: { ...spec.data, tasks: elsewhere } };
}
