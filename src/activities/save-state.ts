// saveState puts a committed state on the node's disk; uploadCheckpoint carries it to the store, manifest last (R16, R17, R31).
import { mkdir, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { ApplicationFailure } from '@temporalio/common';
import type { StepReference } from './contracts.js';
import type { NodeDeps } from './node-deps.js';
import { fileExists } from './policy-holder.js';
import { currentScope } from './scope.js';
import { stateFileDigest } from './state-file.js';
import { stoppingPoint } from './stopping-point.js';
import { checkpointExists, homeOfStep, writeCheckpoint } from '../store/checkpoints.js';
import { checkpointFolder } from '../store/layout.js';
import { checkOwner, readRun, readState, readUpdate } from '../store/run-records.js';

/** States of a run that stay on the node's disk: the newest, and one before it in case the newest is damaged. */
const localStates = 2;

export async function saveState(deps: NodeDeps, input: StepReference): Promise<{ path: string }> {
  const { run, step } = input;
  const { holder } = deps;
  await checkOwner(deps.store, run, input.owner);
  const state = await readState(deps.store, run, step);
  const path = holder.statePath(run, step, state);
  if (await fileExists(path)) return { path };
  await mkdir(dirname(path), { recursive: true });
  await holder.withState(run, step, (held) => holder.engine.saveState(held, path), currentScope());
  await holder.pruneLocal(run, { step, state }, localStates);
  return { path };
}

/**
 * Uploads what `saveState` saved here, and never makes the engine go back to an old state for it: that would cost the steps
 * under way more than a checkpoint is worth. Ends with `CheckpointGivenUp` where the state is not on this node's disk.
 */
export async function uploadCheckpoint(deps: NodeDeps, input: StepReference): Promise<{ key: string }> {
  const { run, step } = input;
  const { store } = deps;
  await checkOwner(store, run, input.owner);
  const record = await readRun(store, run);
  const key = checkpointFolder(await homeOfStep(store, record, step), step);
  if (await checkpointExists(store, record, step)) return { key };
  const { state, numerics } = (await readUpdate(store, run, step)).identity;
  const path = deps.holder.statePath(run, step, state);
  if (!(await fileExists(path)))
    throw givenUp(`the state of step ${step} is not on the disk of node ${deps.node}`);
  const { signal } = currentScope();
  const found = await stateFileDigest(path, signal).catch((error: Error) => {
    if (error.name === 'BadTensorFile') return error.message;
    throw error;
  });
  if (found !== state) {
    await rm(path, { force: true });
    throw givenUp(`${path} was damaged: it holds ${found}, step ${step} left ${state}`);
  }
  await writeCheckpoint(store, record, {
    step,
    state,
    numerics,
    statePath: path,
    beforeManifest: () => stoppingPoint('checkpoint-data-written'),
    signal,
  });
  return { key };
}

function givenUp(why: string): ApplicationFailure {
  return ApplicationFailure.nonRetryable(
    `${why}; the next checkpoint is taken from the state that is held then`,
    'CheckpointGivenUp',
  );
}
