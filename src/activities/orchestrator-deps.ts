// The dependencies of the orchestrator's activities.
import type { LeaseRequest, RunWorkflow } from './contracts.js';
import type { DatasetCache } from '../data/dataset-cache.js';
import type { OwnerRecord } from '../spec/records/run-records.js';
import type { OpenedStore } from '../store/runs/episodes.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import type { OwnerState } from '../store/runs/owners.js';
import type { ProcessLife } from './attempt/process-life.js';
import type { RunDataCache } from '../data/run-data.js';

export interface OrchestratorDeps {
  store: ObjectStore;
  runs: RunDataCache;
  datasets: DatasetCache;
  life: ProcessLife;
  /** `host:port` of the Temporal server that this worker is connected to. */
  temporalAddress: string;
  clusterId(): Promise<string>;
  /** Asks the owner's Temporal server, named in the record, whether the owner's workflow is still open (R20). */
  ownerState(owner: OwnerRecord): Promise<OwnerState>;
  /** Sends the request to the pool; starts the pool if it is not running. */
  requestLease(request: LeaseRequest): Promise<void>;
  /** True if our Temporal server says that the run's workflow is closed, or does not know the workflow. */
  isOver(run: RunWorkflow): Promise<boolean>;
  log(message: string): void;
}

/** Dependencies as the process opened them. An activity receives them with its run's view of the store, which skips quarantined records. */
export type OpenedDeps = OrchestratorDeps & { store: OpenedStore };
