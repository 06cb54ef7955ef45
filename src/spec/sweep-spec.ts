// A sweep's spec: its schema, and the type of the result, which has all defaults filled in; `sweep-input.ts` makes one from a file. It is JSON,
// and the input of the workflow `evalSweep`.
import { z } from 'zod';
import { count, countOrZero as step, name, runId, text } from './fields.js';

const seconds = { s: 1, m: 60, h: 3_600, d: 86_400 } as const;
type Unit = keyof typeof seconds;

/** Whole seconds, or null if the text is not a duration. */
export function secondsIn(text: string): number | null {
  if (!/^\s*(\d{1,9}\s*[smhd]\s*)+$/.test(text)) return null;
  let total = 0;
  for (const [, count = '', unit = ''] of text.matchAll(/(\d+)\s*([smhd])/g))
    total += Number(count) * seconds[unit as Unit];
  return total;
}

/** Milliseconds of a text that the schema has accepted. */
export function millisecondsOf(text: string): number {
  const total = secondsIn(text);
  if (total === null) throw new TypeError(`"${text}" is not a time such as 90s, 10m or 1d 12h`);
  return total * 1000;
}

const runOrPattern = z.string().regex(/^[A-Za-z0-9_*-][A-Za-z0-9._~*-]{0,73}$/, {
  error: 'must be the id of a run, or a pattern with "*" for several runs, such as "tracker-*"',
});

/** A duration of at least `least` seconds, as text. Not `z.string()`, because for a bare 0 the message should name units. */
const duration = (least: number) =>
  z.custom<string>((value) => typeof value === 'string' && (secondsIn(value) ?? -1) >= least, {
    error: (issue) => timeProblem(issue.input, least),
  });

function timeProblem(value: unknown, least: number): string {
  const shown = JSON.stringify(value)?.slice(0, 60) ?? 'nothing';
  if (typeof value !== 'string' || secondsIn(value) === null)
    return `must be a time such as "90s", "10m", "6h" or "1d 12h", not ${shown}`;
  return `must be at least ${least} s, not ${shown}`;
}

const checkpoints = z.strictObject({
  run: runOrPattern.describe(
    'run that the checkpoints belong to; a pattern with `*` means several runs of the project',
  ),
  steps: z.array(step).min(1).exactOptional().describe('these steps'),
  range: z
    .strictObject({
      from: step.default(0).describe('first step'),
      to: step.exactOptional().describe('last step; absent: the newest'),
      every: count
        .exactOptional()
        .describe('only the steps `from`, `from` + this, …; absent: all steps with a checkpoint'),
    })
    .exactOptional()
    .describe('the checkpoints between two steps, both included'),
  latest: count.exactOptional().describe('the N newest checkpoints'),
  best: count.exactOptional().describe('the N checkpoints with the best evaluations'),
  every: count.exactOptional().describe('the newest checkpoint, and every N-th before it'),
  not_yet_evaluated: z
    .boolean()
    .default(false)
    .describe('only those without a result on a suite of the sweep'),
});

const suite = z.strictObject({
  name: name.describe(
    'name in tables; `interval` and `final` are the run’s own suites and take no other setting',
  ),
  split: z.enum(['train', 'held_out']).default('held_out').describe('part of the data'),
  environments: z
    .array(text)
    .min(1)
    .exactOptional()
    .describe('only tasks of these environments; absent: of all environments'),
  difficulty: z
    .array(z.number())
    .min(1)
    .exactOptional()
    .describe('only tasks of these difficulties; absent: of all difficulties'),
  max_tasks: count.max(100_000).exactOptional().describe('only the first N tasks; absent: all'),
  samples: count.max(999).default(1).describe('episodes of each task'),
  temperature: z.number().gt(0).max(10).default(1).describe('sampling temperature'),
  seed: z
    .int()
    .min(0)
    .max(Number.MAX_SAFE_INTEGER)
    .exactOptional()
    .describe('seed of sampling and of the choice of tasks; absent: the seed of the run in `data_of`'),
});

const baseline = z.strictObject({
  run: runId.describe('run of the baseline state'),
  step: step.describe('step of the baseline state'),
  regression: z
    .number()
    .min(0)
    .max(1)
    .default(0.05)
    .describe(
      'a loss of pass@1, as a share: a state that is significantly worse by more than this raises the alarm',
    ),
});

/** The shortest catch-up window that a server accepts, in seconds. */
const leastCatchUp = 10;

const schedule = z.strictObject({
  cron: z
    .string()
    .exactOptional()
    .describe('minute, hour, day of month, month, day of week; excludes `every`'),
  every: duration(1).exactOptional().describe('time between firings; excludes `cron`'),
  time_zone: z.string().default('UTC').describe('time zone of `cron`, such as `Europe/Berlin`'),
  jitter: duration(0).exactOptional().describe('firings are delayed by a random time up to this'),
  overlap: z
    .enum(['skip', 'buffer_one', 'buffer_all', 'cancel_other', 'terminate_other', 'allow_all'])
    .default('skip')
    .describe('what happens at a firing while the previous sweep is still running'),
  catch_up: duration(leastCatchUp)
    .default('10m')
    .describe('a firing missed during an outage is made up for if it is at most this late'),
});

export const sweepSpecSchema = z.strictObject({
  name: name.describe('name of the sweep, unique in its project'),
  project: name.default('longhaul').describe('project of its runs'),
  data_of: runId
    .exactOptional()
    .describe(
      'run whose data, seed and settings the suites use; absent: the run of `baseline`, else the first run in `checkpoints`',
    ),
  checkpoints: z.array(checkpoints).min(1).describe('checkpoints to evaluate'),
  suites: z.array(suite).min(1).describe('suites of tasks to evaluate them on'),
  baseline: baseline
    .exactOptional()
    .describe('state that all others are compared with; absent: the first state of the sweep'),
  parallel: count.max(64).default(2).describe('how many evaluations (one state on one suite) run at once'),
  schedule: schedule.exactOptional().describe('when the sweep starts by itself; absent: only on command'),
  again: z
    .literal(true)
    .exactOptional()
    .describe('each start plays everything again; absent: existing results are reused'),
});

export type SweepSpec = z.output<typeof sweepSpecSchema>;
/** Selects checkpoints of a run by at most one of `steps`, `range`, `latest`, `best`, `every`; without these, selects all. */
export type CheckpointsSpec = z.output<typeof checkpoints>;
export type SuiteSpec = z.output<typeof suite>;
/** When a sweep is started: exactly one of `cron` and `every` is given. */
export type SweepScheduleSpec = z.output<typeof schedule>;

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
