// What the orchestrator's activities are made of.
import type { DatasetCache } from './dataset-cache.js';
import type { Numerics, OwnerRecord } from '../spec/records.js';
import type { ObjectStore } from '../store/object-store.js';
import type { OwnerState } from '../store/owners.js';
import type { RunDataCache } from './run-data.js';

export interface AliveNode {
  id: string;
  /** Absent until its engine has told them. */
  numerics?: Numerics;
}

export interface OrchestratorDeps {
  store: ObjectStore;
  runs: RunDataCache;
  datasets: DatasetCache;
  /** `host:port` of the Temporal server that this worker serves. */
  temporalAddress: string;
  clusterId(): Promise<string>;
  /** Asks the recorded server whether the owner's workflow is still open (R20). */
  ownerState(owner: OwnerRecord): Promise<OwnerState>;
  /** Nodes that reported lately, newest first. */
  aliveNodes(): Promise<AliveNode[]>;
  log(message: string): void;
}
