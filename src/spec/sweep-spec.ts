// A sweep as every other part sees it: checked, with all defaults filled in; `sweep-input.ts` makes one from the input. It is JSON, and the
// same JSON is the input of the workflow `evalSweep`.

/** Which checkpoints of a run: at most one of `steps`, `range`, `latest`, `best`, `every`; none of them takes all. */
export interface CheckpointsSpec {
  /** Run id, or a pattern with `*` for several runs of the sweep's project. */
  run: string;
  steps?: number[];
  range?: StepRange;
  /** This many newest ones. */
  latest?: number;
  /** This many with the best evaluations. */
  best?: number;
  /** The newest one, and every n-th before it. */
  every?: number;
  /** Keeps only those without a result on some suite of the sweep. */
  not_yet_evaluated: boolean;
}

/** Steps from `from` to `to`, both included; with `every`, those of `from`, `from + every`, … that have a checkpoint. */
export interface StepRange {
  from: number;
  /** Absent: the newest. */
  to?: number;
  every?: number;
}

/** `interval` and `final` are a run's own suites, and take no other settings. */
export interface SuiteSpec {
  name: string;
  split: 'train' | 'held_out';
  environments?: string[];
  difficulty?: number[];
  /** The first ones that the filters leave, in the data's order. */
  max_tasks?: number;
  samples: number;
  temperature: number;
  /** Absent: the seed of the run that supplies the suites. */
  seed?: number;
}

export interface BaselineSpec {
  run: string;
  step: number;
  /** Share of pass@1: a state that is significantly worse by more raises the alarm. */
  regression: number;
}

export const overlapPolicies = [
  'skip',
  'buffer_one',
  'buffer_all',
  'cancel_other',
  'terminate_other',
  'allow_all',
] as const;
export type OverlapPolicy = (typeof overlapPolicies)[number];

/** One of `cron` and `every`. Times are texts such as `90s`, `10m`, `1d 12h`. */
export interface SweepScheduleSpec {
  cron?: string;
  every?: string;
  time_zone: string;
  jitter?: string;
  overlap: OverlapPolicy;
  /** Firings that an outage delayed are made up for if they are at most this late. */
  catch_up: string;
}

export interface SweepSpec {
  name: string;
  project: string;
  /** Run that supplies the suites' data, seed and settings. Absent: the baseline's, else the first of `checkpoints`. */
  data_of?: string;
  checkpoints: CheckpointsSpec[];
  suites: SuiteSpec[];
  baseline?: BaselineSpec;
  /** Evaluations (a state on a suite) under way at once. */
  parallel: number;
  schedule?: SweepScheduleSpec;
  /** Plays all of it again, even if results exist. */
  again?: true;
}

/** True if `run` is a pattern for several runs. */
export function isPattern(run: string): boolean {
  return run.includes('*');
}

/** The member of the spec that `suitesAreOf` takes. */
export function suitesAreNamedBy({ data_of, baseline }: SweepSpec): string {
  return data_of !== undefined ? 'data_of' : baseline ? 'baseline.run' : 'checkpoints[0].run';
}

/** The run that supplies the suites' data, seed and settings. */
export function suitesAreOf({ data_of, baseline, checkpoints }: SweepSpec): string {
  const run = data_of ?? baseline?.run ?? checkpoints[0]?.run;
  if (run === undefined) throw new TypeError('a sweep without checkpoints has passed its check');
  return run;
}
