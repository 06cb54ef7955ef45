// The records of sweeps: what is to be evaluated on what, and what a comparison needs of an evaluation's episodes.
import type { SuiteRecord } from './evaluation-records.js';
import type { Digest } from './records.js';
import type { SweepSpec } from '../sweep-spec.js';

export interface Place {
  run: string;
  step: number;
}

export interface SelectedCheckpoint extends Place {
  state: Digest;
  /** The same state elsewhere: at a step that was not applied, or under a fork's name. */
  also: Place[];
  /** False where all suites had their result when it was chosen: nobody needs to load it. */
  needed: boolean;
}

export interface SkippedCheckpoint {
  run: string;
  /** Null: all of the run. */
  step: number | null;
  /** Goes on after `{run}@{step}`: `its manifest says …`. */
  reason: string;
}

export interface SweepSuiteEntry {
  /** The sweep's name for it. */
  label: string;
  digest: Digest;
  record: SuiteRecord;
}

/** `sweeps/{sweep}/sweep.json`: a choice, so that whoever starts the sweep again finds it, whatever has been trained meanwhile. */
export interface SweepRecord {
  schema: 'longhaul.sweep/1' | 'longhaul.sweep/2';
  sweep: string;
  spec: SweepSpec;
  /** Run whose data and settings the suites have. */
  suites_of: string;
  checkpoints: SelectedCheckpoint[];
  suites: SweepSuiteEntry[];
  /** State that all others are compared with; null: the first checkpoint's. */
  baseline: Digest | null;
  skipped: SkippedCheckpoint[];
  observed: { at: string };
}

/** Reward (null: unknown), turns, tool calls, tool errors. */
export type TalliedSample = [reward: number | null, turns: number, toolCalls: number, toolErrors: number];

/** `tallies/{state}/{suite}.json`: a whole evaluation's episodes as a few numbers each; a function of the episodes. */
export interface TallyRecord {
  schema: 'longhaul.tally/1';
  state: Digest;
  suite: Digest;
  /** By the suite's task, then by sample. */
  samples: TalliedSample[][];
}
