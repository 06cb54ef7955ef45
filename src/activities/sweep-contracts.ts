// The types that the workflow `evalSweep` and its activities exchange. All payloads are small: pairs come in windows.
import type { PassRate } from '../spec/pass-rate.js';
import type { Digest } from '../spec/records/parts.js';

/** What the workflow needs of a planned sweep. */
export interface PlannedSweep {
  sweep: string;
  project: string;
  /** The run that supplies the suites' data and settings. */
  suitesOf: string;
  /** Pairs of a state and a suite, including those that already have a result. */
  pairs: number;
  parallel: number;
}

/** A pair as shown to people. */
export interface PairToDo {
  n: number;
  run: string;
  step: number;
  /** The sweep's name for the suite. */
  suite: string;
}

/** A pair that has no result yet. */
export interface MissingPair extends PairToDo {
  /** Its episodes that are missing. */
  missing: number;
}

/** Pairs behind `after` that have no result yet, in their order. */
export interface PairsToDo {
  pairs: MissingPair[];
  /** Number of the last pair that was looked at. */
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
  /** One line for each suite and state that the alarm is raised for. */
  alarms: string[];
  /** What could not be compared, with the suite; absent: nothing. */
  gaps?: string[];
  /** The table, as text; at most 4,000 characters. */
  table: string;
}

/** On the orchestrator's queue. */
export interface SweepActivities {
  /** Checks the spec and chooses the checkpoints, once for each sweep. Fails with every problem at once (`InvalidSpec`). */
  planSweep(input: { spec: unknown; sweep: string }): Promise<PlannedSweep>;
  pairsToDo(input: { sweep: string; after: number; limit: number }): Promise<PairsToDo>;
  /** Compares the existing results, and writes page and rows. `failed`: pairs that could not be evaluated. */
  compareSweep(input: { sweep: string; failed: FailedPair[] }): Promise<ComparedSweep>;
}

/** On a node's queue. */
export interface SweepNodeActivities {
  /** Each (state, suite, task, sample) is played once ever, by the first that needs it. */
  evaluatePair(input: { sweep: string; pair: number }): Promise<EvaluatedPair>;
}
