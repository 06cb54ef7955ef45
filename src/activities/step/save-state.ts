// saveState puts a committed state on the node's disk; uploadCheckpoint carries it to the store, manifest last (R16, R17, R31).
import { rm } from 'node:fs/promises';
import { ApplicationFailure } from '@temporalio/common';
import type { StepReference } from '../contracts.js';
import type { NodeDeps } from '../node-deps.js';
import { fileExists, type LocalState, statesKept } from '../../policy/local-states.js';
import { currentScope } from '../attempt/scope.js';
import { type Attended } from '../../policy/attended.js';
import { stateFileDigest } from '../../policy/state-file.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { Digest } from '../../spec/records/parts.js';
import { checkpointExists, homeOfStep, writeCheckpoint } from '../../store/runs/checkpoints.js';
import { checkpointFolder } from '../../store/objects/layout.js';
import { checkOwner } from '../../store/runs/owners.js';
import { readRun, readState, readUpdate } from '../../store/runs/run-records.js';

/** Runs whose states stay on the disk: more than a node serves at once, and not all that it ever has. */
const runsKept = 32;

/** `written`: whether the file was missing; it exists now. */
export interface SavedState {
  path: string;
  written: boolean;
}

/** Only the next step's update waits for it. */
export async function saveState(
  deps: NodeDeps,
  input: StepReference & { spare?: number },
): Promise<{ path: string }> {
  const began = performance.now();
  const { path, written } = await saveAmongFew(deps, input);
  if (written) deps.checkpointStalls.set(input.run, { step: input.step + 1, ms: performance.now() - began });
  return { path };
}

/** Puts the state on the node's disk, and removes surplus states there. */
export async function saveAmongFew(
  deps: NodeDeps,
  input: StepReference & { spare?: number },
): Promise<SavedState> {
  const { run, step } = input;
  const { states } = deps.holder;
  await checkOwner(deps.store, run, input.owner);
  const committed = { step, state: await readState(deps.store, run, step) };
  const saved = await putOnDisk(deps, run, committed, currentScope());
  if (saved.written) {
    await states.prune(run, committed, statesKept, input.spare);
    await states.pruneRuns(runsKept);
  }
  return saved;
}

/** Removes nothing: one of the states there may be in upload. */
export async function putOnDisk(
  { holder }: NodeDeps,
  run: string,
  committed: LocalState,
  attempt: Attended,
): Promise<SavedState> {
  const path = holder.states.path(run, committed);
  if (await fileExists(path)) return { path, written: false };
  await holder.states.prepare(run);
  attempt.signal.throwIfAborted();
  await holder.withState(run, committed.step, (held) => holder.engine.saveState(held, path), attempt);
  return { path, written: true };
}

/**
 * Uploads what was saved here. If it is missing or damaged, the engine does not go back to an old state for it (`CheckpointGivenUp`): that
 * would cost the steps under way more than a checkpoint is worth. Only with `restore` it does.
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
  const scope = currentScope();
  const { signal, progress } = scope;
  const problem = await problemOf(path, state, signal);
  if (problem !== null && !input.restore) {
    throw ApplicationFailure.nonRetryable(
      `the state of step ${step} cannot be uploaded from node ${deps.node}: ${problem}; ` +
        'the next checkpoint is taken from the state that is held then',
      'CheckpointGivenUp',
    );
  }
  if (problem !== null) await putOnDisk(deps, run, { step, state }, scope);
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

/** Null if the file holds the state; any other file is removed. */
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
