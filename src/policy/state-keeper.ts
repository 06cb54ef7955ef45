// The interface between a run's records and the states of its engine. The native implementation keeps states as files with digests
// (native-state-keeper.ts).
import type { UpdateProgress, UpdateResult } from '../engine/policy-engine.js';
import type { Digest } from '../spec/records/parts.js';
import type { PlanRecord } from '../spec/records/plan.js';
import type { RunRecord } from '../spec/records/run-records.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import type { CheckpointToWrite } from '../store/runs/checkpoints.js';
import type { WorkContext } from './attempt-scope.js';

/** A step and its recorded state. */
export interface CommittedState {
  run: string;
  step: number;
  state: Digest;
}

/** Who reads a state: the run itself, for which its trained model on a server may be used (R33), or anyone else. */
export type StateReader = 'run' | 'visitor';

/** State 0, as `longhaul.base` records it. */
export interface BaseState {
  state: Digest;
  /** Absent, like `parameters`, if the engine does not report it. */
  weights?: Digest;
  /** Number of parameters in the model without adapters, and in its trained part. */
  parameters?: { model: number; trained: number };
}

/** The logged batch of a step, and how to apply it. */
export interface StepUpdate {
  run: string;
  step: number;
  plan: PlanRecord;
  batch: Digest;
  stepId: Digest;
  onProgress?: (progress: UpdateProgress) => void;
  signal?: AbortSignal;
  /** Says what a request waits for. */
  progress?: WorkContext['progress'];
}

/**
 * How a state is obtained before an update changes it. `held`: as the engine holds it. The other two recompute it after a divergence, each
 * tried once (R19).
 */
export const provenances = ['held', 'on a fresh engine', 'from an older checkpoint'] as const;
export type Provenance = (typeof provenances)[number];

export type CheckpointUpload = Omit<CheckpointToWrite, 'step' | 'state' | 'statePath'>;

/** A caller that changes the held state must hold the engine's lock exclusively; readers share the lock. */
export interface StateKeeper {
  held(): Promise<Digest | null>;
  /** Digest of the held model's weights; null if the engine does not report it. */
  weights(): Promise<Digest | null>;
  /** Loads the run's state 0 into the engine, and makes it available to other nodes. */
  holdBase(record: RunRecord, attempt: WorkContext): Promise<BaseState>;
  hold(wanted: CommittedState, reader: StateReader, attempt: WorkContext): Promise<void>;
  /**
   * Loads everything that `apply` needs for the update `stepId` of `before`. Does nothing if the engine has already applied that update.
   */
  holdForUpdate(
    before: CommittedState,
    stepId: Digest,
    provenance: Provenance,
    attempt: WorkContext,
  ): Promise<void>;
  /** Called when the last reader leaves; a model made only for reading may end. Waits for no server for long. */
  idle(): Promise<void>;
  /** Drops the state in the engine; the next state is restored from saved ones. */
  forget(): Promise<void>;
  /** Applies the logged batch of a step to the state before the step. Throws the reason of `signal` when it aborts. */
  apply(update: StepUpdate): Promise<UpdateResult>;
  /** Where the state is saved outside the engine's memory; null if it is not saved. */
  kept(committed: CommittedState): Promise<string | null>;
  /** Saves the held state outside the engine's memory and returns where. Removes nothing, because another saved state may be uploading. */
  keep(committed: CommittedState, attempt: WorkContext): Promise<string>;
  /** Removes saved states that are no longer needed. It keeps `committed` and the state after step `spare`. */
  prune(committed: CommittedState, spare?: number): Promise<void>;
  /** Why the saved state cannot be uploaded; null if it can. */
  problemOf(committed: CommittedState, signal: AbortSignal): Promise<string | null>;
  /** Uploads the saved state to the store, manifest last (R17). */
  upload(
    store: ObjectStore,
    record: RunRecord,
    committed: CommittedState,
    upload: CheckpointUpload,
  ): Promise<void>;
}
