// The types that the workflow `evalSweep` and its activities exchange. All payloads are small: an answer lists only a limited number of
// pairs.
import type { PassRate } from '../spec/pass-rate.js';
import type { Digest } from '../spec/records/parts.js';

/** The parts of a planned sweep that the workflow needs. */
export interface PlannedSweep {
  sweep: string;
  project: string;
  /** The run from which the suites take their data and settings. */
  suitesOf: string;
  /** Pairs of a state and a suite, including those that already have a result. */
  pairs: number;
  parallel: number;
}

/** A pair as people see it. */
export interface PairToDo {
  n: number;
  run: string;
  step: number;
  /** The suite's name in the sweep. */
  suite: string;
}

/** A pair that has no result yet. */
export interface MissingPair extends PairToDo {
  /** How many of its episodes are missing. */
  missing: number;
}

/** Pairs after `after` that have no result yet, in order. */
export interface PairsToDo {
  pairs: MissingPair[];
  /** Number of the last pair looked at. */
  seen: number;
}

export interface EvaluatedPair {
  state: Digest;
  pass_at_1: PassRate;
  graded: number;
  unknown: number;
  seconds: number;
}

export interface FailedPair extends PairToDo {
  /** First line of the failure. */
  reason: string;
}

export interface ComparedSweep {
  /** Key of the page. */
  report: string;
  /** Key of the rows. */
  results: string;
  /** One line for each suite and state that raises the alarm. */
  alarms: string[];
  /** What could not be compared, with the suite; absent if everything was compared. */
  gaps?: string[];
  /** The table, as text; at most 4,000 characters. */
  table: string;
}

/** On the orchestrator's queue. */
export interface SweepActivities {
  /** Checks the spec and chooses the checkpoints, once for each sweep. Throws `InvalidSpec`, which lists every problem. */
  planSweep(input: { spec: unknown; sweep: string }): Promise<PlannedSweep>;
  pairsToDo(input: { sweep: string; after: number; limit: number }): Promise<PairsToDo>;
  /** Compares the results so far, and writes page and rows. `failed`: pairs that could not be evaluated. */
  compareSweep(input: { sweep: string; failed: FailedPair[] }): Promise<ComparedSweep>;
}

/** On a node's queue. */
export interface SweepNodeActivities {
  /** Each (state, suite, task, sample) is played only once, by the first run or sweep that needs it. */
  evaluatePair(input: { sweep: string; pair: number }): Promise<EvaluatedPair>;
}
