// What the orchestrator's activities are made of.
import type { LeaseRequest, RunWorkflow } from './contracts.js';
import type { DatasetCache } from '../data/dataset-cache.js';
import type { OwnerRecord } from '../spec/records/run-records.js';
import type { OpenedStore } from '../store/evaluations/folded-evaluations.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import type { OwnerState } from '../store/runs/owners.js';
import type { ProcessLife } from './attempt/process-life.js';
import type { RunDataCache } from '../data/run-data.js';

export interface OrchestratorDeps {
  store: ObjectStore;
  runs: RunDataCache;
  datasets: DatasetCache;
  life: ProcessLife;
  /** `host:port` of the Temporal server that this worker serves. */
  temporalAddress: string;
  clusterId(): Promise<string>;
  /** Asks the recorded server whether the owner's workflow is still open (R20). */
  ownerState(owner: OwnerRecord): Promise<OwnerState>;
  /** Tells the pool; starts it where there is none. */
  requestLease(request: LeaseRequest): Promise<void>;
  /** True where our server knows that the run's workflow is closed, or knows none. */
  isOver(run: RunWorkflow): Promise<boolean>;
  log(message: string): void;
}

/** As the process has them: in a run's view of them the store is not the opened one. */
export type OpenedDeps = OrchestratorDeps & { store: OpenedStore };
