// A node that leaves uploads the state after the last step that it committed, which it alone may have, so that no other node has to compute
// it again (R17).
import type { NodeDeps } from '../node-deps.js';
import { checkpointExists } from '../../store/runs/checkpoints.js';
import { readRun, readUpdate } from '../../store/runs/run-records.js';

export interface CommittedState {
  run: string;
  step: number;
}

/**
 * The committed state that is in the store now, by this call or before it; null if the engine holds another state and none was saved.
 * Rejects when `signal` aborts: what was uploaded by then is no checkpoint, because its manifest comes last.
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
