// What a chain audit carries from step to step.
import type { Digest } from '../../spec/records/parts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { GrpoPlan, PlanRecord } from '../../spec/records/plan.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { WaveRecord } from '../../spec/records/wave.js';
import type { ObjectStore } from '../objects/object-store.js';
import type { AuditReport } from './audit-report.js';
import type { Sequences } from './sequence-audit.js';

/** Functions that make a step's plan and batch again from the records in a view of the store. */
export interface StepMakers {
  plan: (stored: PlanRecord) => Promise<PlanRecord>;
  waves: (plan: GrpoPlan, outcomes: (number | null)[][]) => Promise<WaveRecord[]>;
  /** Makes the bytes of a step's batch from its plan and its episodes (by slot and sample; empty for a supervised plan). */
  batch: (plan: PlanRecord, episodes: EpisodeRecord[][]) => Promise<Uint8Array>;
}

/** What the audit knows after the steps so far. */
export interface Chain {
  store: ObjectStore;
  record: RunRecord;
  report: AuditReport;
  sequences: Sequences;
  state: Digest | null;
  /** Weights from which GRPO starts; null until the chain has reached them, or if no record names them. */
  weights: Digest | null;
  /** Kind of the newest step. */
  kind: PlanRecord['kind'] | null;
  /** The step that applied an update: by the update's step id, and by its batch's digest. */
  applied: Map<Digest, number>;
  control: number;
  owner: number;
  /** States of the chain by step. */
  states: (Digest | null)[];
  make: StepMakers;
  /** One digest for each line of `demonstrations.jsonl`; null if the run's data cannot be read. */
  demonstrations: readonly Digest[] | null;
  /** Keys of records that changed after a plan was made from them; each is reported once. */
  changedRoots: Set<string>;
}
