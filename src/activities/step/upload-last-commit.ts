// A node that leaves uploads the state after the last step it committed. It may be the only node with that state; otherwise another node
// would have to compute it again (R17).
import type { NodeDeps } from '../node-deps.js';
import { checkpointExists } from '../../store/runs/checkpoints.js';
import { readRun, readUpdate } from '../../store/runs/run-records.js';

interface CommittedState {
  run: string;
  step: number;
}

/**
 * Returns the committed step whose state is now in the store, uploaded now or before. Null if the engine holds another state and this one
 * was not saved. Rejects when `signal` aborts: a partial upload is no checkpoint, because the manifest is written last.
 */
export async function keepLastCommit(deps: NodeDeps, signal: AbortSignal): Promise<CommittedState | null> {
  const { store, holder } = deps;
  const newest = deps.lastCommits.newest();
  if (!newest) return null;
  const [run, { step }] = [newest.name, newest.value];
  const record = await readRun(store, run);
  if (await checkpointExists(store, record, step)) return { run, step };
  const { state, numerics } = (await readUpdate(store, run, step)).identity;
  const committed = { run, step, state };
  if ((await holder.keeper.kept(committed)) === null && (await holder.keeper.held()) !== state) return null;
  await holder.keep(committed, { signal, progress: () => undefined });
  await holder.keeper.upload(store, record, committed, { numerics, signal });
  return { run, step };
}
