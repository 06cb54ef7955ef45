// The type of a sweep's spec after checking, with all defaults filled in; `sweep-input.ts` makes one from the input. It is JSON, and the
// input of the workflow `evalSweep`.

/** Selects checkpoints of a run by at most one of `steps`, `range`, `latest`, `best`, `every`; without these, selects all. */
export interface CheckpointsSpec {
  /** Run id, or a pattern with `*` for several runs of the sweep's project. */
  run: string;
  steps?: number[];
  range?: StepRange;
  /** Selects this many of the newest checkpoints. */
  latest?: number;
  /** Selects this many checkpoints with the best evaluations. */
  best?: number;
  /** Selects the newest checkpoint and every n-th before it. */
  every?: number;
  /** Selects only checkpoints that lack a result on at least one suite of the sweep. */
  not_yet_evaluated: boolean;
}

/** Checkpoints at steps from `from` to `to`, both included; with `every`, only at `from`, `from + every`, … */
interface StepRange {
  from: number;
  /** Absent: up to the newest checkpoint. */
  to?: number;
  every?: number;
}

/** The names `interval` and `final` stand for a run's own suites, which take no other settings. */
export interface SuiteSpec {
  name: string;
  split: 'train' | 'held_out';
  environments?: string[];
  difficulty?: number[];
  /** Takes at most this many of the tasks that pass the filters: the first ones in the data's order. */
  max_tasks?: number;
  samples: number;
  temperature: number;
  /** Absent: the seed of the run that supplies the suites. */
  seed?: number;
}

interface BaselineSpec {
  run: string;
  step: number;
  /** Difference in pass@1, as a share; a state that is significantly worse by more than this raises an alarm. */
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

/** When a sweep is started: exactly one of `cron` and `every` is given. Times are texts such as `90s`, `10m`, `1d 12h`. */
export interface SweepScheduleSpec {
  cron?: string;
  every?: string;
  time_zone: string;
  jitter?: string;
  overlap: OverlapPolicy;
  /** After an outage, a missed start is made up for if it is at most this late. */
  catch_up: string;
}

export interface SweepSpec {
  name: string;
  project: string;
  /** Run that supplies the suites' data, seed and settings. Absent: the baseline's run, or else the first run in `checkpoints`. */
  data_of?: string;
  checkpoints: CheckpointsSpec[];
  suites: SuiteSpec[];
  baseline?: BaselineSpec;
  /** Number of evaluations (a state on a suite) that run at once. */
  parallel: number;
  schedule?: SweepScheduleSpec;
  /** Evaluates everything again, even if results exist. */
  again?: true;
}

/** True if `run` is a pattern for several runs. */
export function isPattern(run: string): boolean {
  return run.includes('*');
}

/** Path of the spec's member that names the run of `suitesAreOf`. */
export function suitesAreNamedBy({ data_of, baseline }: SweepSpec): string {
  return data_of !== undefined ? 'data_of' : baseline ? 'baseline.run' : 'checkpoints[0].run';
}

/** The run that supplies the suites' data, seed and settings. */
export function suitesAreOf({ data_of, baseline, checkpoints }: SweepSpec): string {
  const run = data_of ?? baseline?.run ?? checkpoints[0]?.run;
  if (run === undefined) throw new TypeError('a sweep without checkpoints has passed its check');
  return run;
}
