// The seam between a run's records and an engine's states: native states are files with digests (native-states.ts).
import type { UpdateProgress, UpdateResult } from '../engine/policy-engine.js';
import type { Digest } from '../spec/records/parts.js';
import type { PlanRecord } from '../spec/records/plan.js';
import type { RunRecord } from '../spec/records/run-records.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import type { CheckpointToWrite } from '../store/runs/checkpoints.js';
import type { Attended } from './attended.js';

/** A step whose state is recorded. */
export interface CommittedState {
  run: string;
  step: number;
  state: Digest;
}

/** State 0, as `longhaul.base` records it. */
export interface BaseState {
  state: Digest;
  /** Absent if the engine computes none, as are the numbers of parameters. */
  weights?: Digest;
  /** In the model without adapters, and in its trained part. */
  parameters?: { model: number; trained: number };
}

/** A step's batch, as its update applies it. */
export interface StepUpdate {
  run: string;
  step: number;
  plan: PlanRecord;
  batch: Digest;
  stepId: Digest;
  onProgress?: (progress: UpdateProgress) => void;
  signal?: AbortSignal;
}

/** How a state is obtained before it is changed: as the engine holds it, or computed again after a divergence, once each (R19). */
export const provenances = ['held', 'on a fresh engine', 'from an older checkpoint'] as const;
export type Provenance = (typeof provenances)[number];

export type CheckpointUpload = Omit<CheckpointToWrite, 'step' | 'state' | 'statePath'>;

/** Callers of what changes the held state hold the engine's lock exclusively; readers share it. */
export interface StateKeeper {
  held(): Promise<Digest | null>;
  /** Digest of the held model's weights; null if the engine computes none. */
  weights(): Promise<Digest | null>;
  /** Makes the engine hold the run's state 0, where other nodes can have it too. */
  holdBase(record: RunRecord, attempt: Attended): Promise<BaseState>;
  hold(wanted: CommittedState, attempt: Attended): Promise<void>;
  /** Makes the engine hold all that `apply` needs to change `before` by `stepId`, unless it has made that change. */
  holdForUpdate(
    before: CommittedState,
    stepId: Digest,
    provenance: Provenance,
    attempt: Attended,
  ): Promise<void>;
  /** Drops what the engine holds: the next state is made from what is kept. */
  forget(): Promise<void>;
  /** Applies the logged batch of a step to the state before it; throws the reason of `signal`. */
  apply(update: StepUpdate): Promise<UpdateResult>;
  /** Where the state is kept beyond the engine's memory; null if it is not. */
  kept(committed: CommittedState): Promise<string | null>;
  /** Keeps the held state beyond the engine's memory, and removes nothing: another one there may be in upload. Returns where it is. */
  keep(committed: CommittedState, attempt: Attended): Promise<string>;
  /** Removes kept states that nobody needs beside `committed` and the one after step `spare`. */
  prune(committed: CommittedState, spare?: number): Promise<void>;
  /** Why the kept state cannot be uploaded; null if it can. */
  problemOf(committed: CommittedState, signal: AbortSignal): Promise<string | null>;
  /** Puts the kept state into the store, manifest last (R17). */
  upload(
    store: ObjectStore,
    record: RunRecord,
    committed: CommittedState,
    upload: CheckpointUpload,
  ): Promise<void>;
}
