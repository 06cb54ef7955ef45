// What an audit of a chain carries from step to step.
import type { Digest } from '../../spec/records/parts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { ObjectStore } from '../objects/object-store.js';
import type { AuditReport } from './audit-report.js';
import type { Sequences } from './sequence-audit.js';

/** The functions that make a step, for a view of the store. */
export interface StepMakers {
  /** The plan in place of a stored one, from the records before it. */
  plan: (stored: PlanRecord) => Promise<PlanRecord>;
  /** The bytes of a step's batch, from its plan and its episodes (by slot and sample; none for a supervised plan). */
  batch: (plan: PlanRecord, episodes: EpisodeRecord[][]) => Promise<Uint8Array>;
}

/** Where the audit is: what the steps so far have left behind. */
export interface Chain {
  store: ObjectStore;
  record: RunRecord;
  report: AuditReport;
  sequences: Sequences;
  state: Digest | null;
  /** Weights that GRPO begins with, once the chain has reached them; null if no record names any. */
  weights: Digest | null;
  /** Kind of the newest step. */
  kind: PlanRecord['kind'] | null;
  /** Step that applied it, by step id and by batch. */
  applied: Map<Digest, number>;
  control: number;
  owner: number;
  /** States of the chain by step. */
  states: (Digest | null)[];
  make: StepMakers;
  /** One digest for each line of `demonstrations.jsonl`; null if the run's data cannot be read. */
  demonstrations: readonly Digest[] | null;
  /** Changed records under which plans were made: each is reported once. */
  changedRoots: Set<string>;
}
