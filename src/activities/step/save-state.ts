// saveState saves a committed state to disk, so that it outlives the engine. uploadCheckpoint copies it to the store, the manifest last
// (R16, R17, R31).
import { ApplicationFailure } from '@temporalio/common';
import type { StepReference } from '../contracts.js';
import type { NodeDeps } from '../node-deps.js';
import { currentScope } from '../attempt/scope.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import { checkpointExists, homeOfStep } from '../../store/runs/checkpoints.js';
import { checkpointFolder } from '../../store/record-keys.js';
import { checkOwner } from '../../store/runs/owners.js';
import { readRun, readState, readUpdate } from '../../store/runs/run-records.js';

/** Saves the state; only the update of the next step waits for this. */
export async function saveState(
  deps: NodeDeps,
  input: StepReference & { spare?: number },
): Promise<{ path: string }> {
  const began = performance.now();
  const { path, written } = await saveAmongFew(deps, input);
  if (written) deps.checkpointStalls.set(input.run, { step: input.step + 1, ms: performance.now() - began });
  return { path };
}

/** Saves the state and deletes surplus older ones. `written` is false if the state was saved before. */
export async function saveAmongFew(
  deps: NodeDeps,
  input: StepReference & { spare?: number },
): Promise<{ path: string; written: boolean }> {
  const { run, step } = input;
  const { holder, store } = deps;
  await checkOwner(store, run, input.owner);
  const committed = { run, step, state: await readState(store, run, step) };
  const saved = await holder.keep(committed, currentScope());
  if (saved.written) await holder.keeper.prune(committed, input.spare);
  return saved;
}

/**
 * Uploads the state saved on this node. If it is missing or damaged, the upload fails with `CheckpointGivenUp`: to restore the old state in
 * the engine would interrupt the current steps, which are worth more than a checkpoint. With `restore`, it is restored all the same.
 */
export async function uploadCheckpoint(
  deps: NodeDeps,
  input: StepReference & { restore?: boolean },
): Promise<{ key: string }> {
  const { run, step } = input;
  const { store } = deps;
  await checkOwner(store, run, input.owner);
  const record = await readRun(store, run);
  const key = checkpointFolder(await homeOfStep(store, record, step), step);
  if (await checkpointExists(store, record, step)) return { key };
  const { state, numerics } = (await readUpdate(store, run, step)).identity;
  const committed = { run, step, state };
  const { keeper } = deps.holder;
  const scope = currentScope();
  const { signal, progress } = scope;
  const problem = await keeper.problemOf(committed, signal);
  if (problem !== null && !input.restore) {
    throw ApplicationFailure.nonRetryable(
      `the state of step ${step} cannot be uploaded from node ${deps.node}: ${problem}; ` +
        'the next checkpoint uploads the state that the node holds then',
      'CheckpointGivenUp',
    );
  }
  if (problem !== null) await deps.holder.keep(committed, scope);
  await keeper.upload(store, record, committed, {
    numerics,
    beforeManifest: () => stoppingPoint('checkpoint-data-written'),
    signal,
    onProgress: (bytes) => progress({ uploading: step, bytes }),
  });
  return { key };
}
