// saveState puts a committed state on the node's disk; uploadCheckpoint carries it to the store, manifest last (R16, R17, R31).
import { rm } from 'node:fs/promises';
import { ApplicationFailure } from '@temporalio/common';
import type { StepReference } from './contracts.js';
import type { NodeDeps } from './node-deps.js';
import { fileExists } from './local-states.js';
import { currentScope } from './scope.js';
import { stateFileDigest } from './state-file.js';
import { stoppingPoint } from './stopping-point.js';
import type { Digest } from '../spec/records.js';
import { checkpointExists, homeOfStep, writeCheckpoint } from '../store/checkpoints.js';
import { checkpointFolder } from '../store/layout.js';
import { checkOwner } from '../store/owners.js';
import { readRun, readState, readUpdate } from '../store/run-records.js';

/** States of a run that stay on the node's disk: the newest, and one before it in case the newest is damaged. */
const statesKept = 2;
/** Runs whose states stay there: more than a node serves at once, and not all that it ever has. */
const runsKept = 32;

/** Puts the state on the node's disk; the next step's update waits for it, and so far for nothing else. */
export async function saveState(
  deps: NodeDeps,
  input: StepReference & { spare?: number },
): Promise<{ path: string }> {
  const { run, step } = input;
  const { holder } = deps;
  await checkOwner(deps.store, run, input.owner);
  const state = await readState(deps.store, run, step);
  const path = holder.states.path(run, { step, state });
  if (await fileExists(path)) return { path };
  const began = performance.now();
  await holder.states.prepare(run);
  await holder.withState(run, step, (held) => holder.engine.saveState(held, path), currentScope());
  await holder.states.prune(run, { step, state }, statesKept, input.spare);
  await holder.states.pruneRuns(runsKept);
  deps.checkpointStalls.set(run, { step: step + 1, ms: performance.now() - began });
  return { path };
}

/**
 * Uploads what was saved here. Where it is not there any more, or is damaged, the engine does not go back to an old state for it
 * (`CheckpointGivenUp`): that would cost the steps under way more than a checkpoint is worth. Only with `restore` it does.
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
  const path = deps.holder.states.path(run, { step, state });
  const { signal, progress } = currentScope();
  const problem = await problemOf(path, state, signal);
  if (problem !== null && !input.restore) {
    throw ApplicationFailure.nonRetryable(
      `the state of step ${step} cannot be uploaded from node ${deps.node}: ${problem}; ` +
        'the next checkpoint is taken from the state that is held then',
      'CheckpointGivenUp',
    );
  }
  if (problem !== null) await saveState(deps, input);
  await writeCheckpoint(store, record, {
    step,
    state,
    numerics,
    statePath: path,
    beforeManifest: () => stoppingPoint('checkpoint-data-written'),
    signal,
    onProgress: (bytes) => progress({ uploading: step, bytes }),
  });
  return { key };
}

/** Null where the file is the state; one that is not is removed. */
async function problemOf(path: string, state: Digest, signal: AbortSignal): Promise<string | null> {
  if (!(await fileExists(path))) return `${path} is not there`;
  const found = await stateFileDigest(path, signal).catch((error: Error) => {
    if (error.name === 'BadTensorFile') return error.message;
    throw error;
  });
  if (found === state) return null;
  await rm(path, { force: true });
  return `${path} was damaged: it held ${found}`;
}
