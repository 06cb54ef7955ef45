// The dependencies of a node's activities.
import type { EnvironmentBackend } from '../environments/environment.js';
import type { SentTokens } from '../engine/tinker/sent-tokens.js';
import type { JournalFolder } from '../episode/journal-folder.js';
import type { EnvironmentSpec } from '../spec/run-spec.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import type { NewestEntries } from '../base/newest-entries.js';
import type { PolicyHolder } from '../policy/policy-holder.js';
import type { ProcessLife } from './attempt/process-life.js';
import type { RunDataCache } from '../data/run-data.js';

/** When this process last committed a step of a run, and the busy meter's reading at that time. */
export interface LastCommit {
  step: number;
  at: number;
  busyMs: number;
}

/** How long the update of `step` waited until the state before the update was saved on the disk. */
export interface CheckpointStall {
  step: number;
  ms: number;
}

export interface NodeDeps {
  store: ObjectStore;
  holder: PolicyHolder;
  runs: RunDataCache;
  meter: { readonly totalMs: number };
  life: ProcessLife;
  /** By run, because a node may serve several runs in turn. */
  lastCommits: NewestEntries<LastCommit>;
  /** By run. Includes runs whose last step was committed by another node. */
  checkpointStalls: NewestEntries<CheckpointStall>;
  /** What was sent to the Tinker server and no record counts; absent on a node with an engine of its own. */
  sent?: SentTokens;
  /** Folder in which running episodes record their turns. */
  journals: JournalFolder;
  /** Stable id of this node. */
  node: string;
  /** One backend per server and call time-out, shared by all episodes of this process. */
  backendFor(spec: EnvironmentSpec, callTimeoutMs: number): EnvironmentBackend;
  log(message: string): void;
}
