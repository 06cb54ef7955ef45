// saveState puts a committed state on the node's disk; uploadCheckpoint carries it to the store, manifest last (R16, R17, R31).
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { StepReference } from './contracts.js';
import type { NodeDeps } from './node-deps.js';
import { fileExists } from './policy-holder.js';
import { currentScope } from './scope.js';
import { stoppingPoint } from './stopping-point.js';
import type { Digest } from '../spec/records.js';
import { checkpointExists, checkpointHome, writeCheckpoint } from '../store/checkpoints.js';
import { checkpointFolder } from '../store/layout.js';
import { checkOwner, readRun, readState, readUpdateIfAny } from '../store/run-records.js';

/** States of a run that stay on the node's disk: the newest, and one before it in case the newest is damaged. */
const localStates = 2;

export async function saveState(
  deps: NodeDeps,
  input: StepReference,
): Promise<{ state: Digest; path: string }> {
  const { run, step } = input;
  await checkOwner(deps.store, run, input.owner);
  const path = deps.holder.statePath(run, step);
  const state = await readState(deps.store, run, step);
  if (await fileExists(path)) return { state, path };
  await mkdir(dirname(path), { recursive: true });
  await deps.holder.withState(run, step, (held) => deps.holder.engine.saveState(held, path));
  await deps.holder.pruneLocal(run, localStates);
  return { state, path };
}

export async function uploadCheckpoint(deps: NodeDeps, input: StepReference): Promise<{ key: string }> {
  const { run, step } = input;
  const { store } = deps;
  await checkOwner(store, run, input.owner);
  const record = await readRun(store, run);
  const home = checkpointHome(record);
  const key = checkpointFolder(home, step);
  if (await checkpointExists(store, record, step)) return { key };
  const { state, path } = await saveState(deps, input);
  const update = await readUpdateIfAny(store, run, step);
  if (!update) throw new Error(`step ${step} of ${run} is not committed: there is no state to upload`);
  await writeCheckpoint(store, record, {
    step,
    state,
    numerics: update.identity.numerics,
    statePath: path,
    beforeManifest: () => stoppingPoint('checkpoint-data-written'),
    signal: currentScope().signal,
  });
  return { key };
}
