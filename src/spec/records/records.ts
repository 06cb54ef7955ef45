// The types of all records by their names.
export type { Digest, FileEntry, SamplingPlan } from './parts.js';
export type {
  AdvantagePlan,
  CurriculumState,
  GroupSlot,
  GrpoPlan,
  OptimizerPlan,
  PlanRecord,
  SftPlan,
} from './plan.js';
export type { EpisodeRecord, EpisodesHeader, Outcome, StopReason, TurnRecord } from './episode.js';
export type { BaseRecord, BatchIdentity, UpdateIdentity, UpdateObserved, UpdateRecord } from './update.js';
export type {
  CollectionRecord,
  DatasetReference,
  Lineage,
  NameRecord,
  NoticeRecord,
  OwnerRecord,
  RefRecord,
  RunRecord,
} from './run-records.js';
export type { CheckpointManifest, DatasetManifest, WeightsManifest } from './manifests.js';
export type { LossPlan } from './loss-plan.js';
