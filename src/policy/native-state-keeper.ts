// Keeps the native engine's states as files on the node's disk and in the store. Each file is checked by its digest.
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { FileEngine } from '../engine/file-engine.js';
import type { UpdateResult } from '../engine/policy-engine.js';
import type { Digest } from '../spec/records/parts.js';
import type { RunRecord } from '../spec/records/run-records.js';
import { lastWarmStep } from '../spec/schedule.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { writeCheckpoint } from '../store/runs/checkpoints.js';
import { readRun } from '../store/runs/run-records.js';
import type { WorkContext } from './attempt-scope.js';
import { fileExists, StateFolder, statesKept } from './state-folder.js';
import { PolicyHolder } from './policy-holder.js';
import { stateFileDigest } from './state-file.js';
import type {
  BaseState,
  CheckpointUpload,
  CommittedState,
  Provenance,
  StateKeeper,
  StateReader,
  StepUpdate,
} from './state-keeper.js';
import { StateRestorer } from './state-restorer.js';

interface NativeStateKeeperOptions {
  store: ObjectStore;
  engine: FileEngine;
  /** Folder on the node's disk for saved states and fetched batches. */
  folder: string;
  log: (message: string) => void;
}

/** Number of runs with saved states on the disk: more runs than a node serves at once, but fewer than it may have served in all. */
const runsKept = 32;

class NativeStateKeeper implements StateKeeper {
  readonly states: StateFolder;
  private readonly restorer: StateRestorer;

  constructor(private readonly options: NativeStateKeeperOptions) {
    const { store, engine, folder, log } = options;
    this.states = new StateFolder(join(folder, 'states'));
    const fetched = new StateFolder(join(folder, 'fetched-states'));
    this.restorer = new StateRestorer({ store, engine, states: this.states, fetched, folder, log });
  }

  async held(): Promise<Digest | null> {
    return (await this.options.engine.held())?.state ?? null;
  }

  async weights(): Promise<Digest | null> {
    return (await this.options.engine.held({ weights: true }))?.weights ?? null;
  }

  async holdBase(record: RunRecord, attempt: WorkContext): Promise<BaseState> {
    await this.restorer.reference.forget();
    const held = await this.restorer.base.hold(record, attempt);
    // Upload the weights before state 0 is recorded: a process that finds the record must find them in the store.
    await this.restorer.base.keep(record, held, attempt);
    // Set the reference now; later, this state would have to be loaded again for it.
    if (record.spec.trainer.use_kl_loss && lastWarmStep(record.spec) === 0)
      await this.options.engine.setReference({ held: true });
    return held;
  }

  async hold(
    { run, step, state }: CommittedState,
    _reader: StateReader,
    attempt: WorkContext,
  ): Promise<void> {
    await this.restorer.restore(await readRun(this.options.store, run), step, state, attempt);
  }

  async holdForUpdate(
    { run, step, state }: CommittedState,
    stepId: Digest,
    provenance: Provenance,
    attempt: WorkContext,
  ): Promise<void> {
    const { store, engine } = this.options;
    const [held, record] = [await engine.held(), await readRun(store, run)];
    const begun = held?.lastStepId === stepId;
    const ready = held?.state === state && (await this.restorer.reference.holdsFor(record, step));
    if (begun || ready) return;
    const newest =
      provenance === 'from an older checkpoint' ? await this.restorer.olderThanNewest(record, step) : step;
    await this.restorer.restore(record, step, state, attempt, newest);
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }

  forget(): Promise<void> {
    return this.options.engine.restart();
  }

  apply(update: StepUpdate): Promise<UpdateResult> {
    return this.restorer.apply(update);
  }

  async kept({ run, ...state }: CommittedState): Promise<string | null> {
    const path = this.states.path(run, state);
    return (await fileExists(path)) ? path : null;
  }

  async keep({ run, ...state }: CommittedState, { signal }: WorkContext): Promise<string> {
    const path = this.states.path(run, state);
    await this.states.prepare(run);
    signal.throwIfAborted();
    await this.options.engine.saveState(state.state, path);
    return path;
  }

  async prune({ run, ...state }: CommittedState, spare?: number): Promise<void> {
    await this.states.prune(run, state, statesKept, spare);
    await this.states.pruneRuns(runsKept);
  }

  /** Also removes a file that is damaged or holds another state. */
  async problemOf({ run, ...state }: CommittedState, signal: AbortSignal): Promise<string | null> {
    const path = this.states.path(run, state);
    if (!(await fileExists(path))) return `${path} does not exist`;
    const found = await stateFileDigest(path, signal).catch((error: Error) => {
      if (error.name === 'BadTensorFile') return error.message;
      throw error;
    });
    if (found === state.state) return null;
    await rm(path, { force: true });
    return `${path} was damaged: it held ${found}`;
  }

  async upload(
    store: ObjectStore,
    record: RunRecord,
    { run, ...state }: CommittedState,
    upload: CheckpointUpload,
  ): Promise<void> {
    const statePath = this.states.path(run, state);
    await writeCheckpoint(store, record, { ...upload, ...state, statePath });
  }
}

export type NativePolicyHolder = PolicyHolder<FileEngine, NativeStateKeeper>;

/** Holds the states of a native engine. */
export function nativePolicyHolder(options: NativeStateKeeperOptions): NativePolicyHolder {
  const { store, engine } = options;
  return new PolicyHolder({ store, engine, keeper: new NativeStateKeeper(options) });
}
