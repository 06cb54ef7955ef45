// The schema of a sweep file: each key with its bounds, default and meaning. The result's types are in `sweep-spec.ts`.
import { z } from 'zod';
import { secondsIn } from './durations.js';
import { count, countOrZero as step, name, runId, text } from '../spec/fields.js';
import { overlapPolicies } from '../spec/sweep-spec.js';

const runOrPattern = z.string().regex(/^[A-Za-z0-9_*-][A-Za-z0-9._~*-]{0,73}$/, {
  error: 'must be the id of a run, or a pattern with "*" for several, such as "tracker-*"',
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
    'run whose checkpoints they are; `*` in it stands for several runs of the project',
  ),
  steps: z.array(step).min(1).exactOptional().describe('these steps'),
  range: z
    .strictObject({
      from: step.default(0).describe('first step'),
      to: step.exactOptional().describe('last step; absent: the newest'),
      every: count
        .exactOptional()
        .describe('only `from`, `from` + this, …; absent: all that have a checkpoint'),
    })
    .exactOptional()
    .describe('those between two steps, both included'),
  latest: count.exactOptional().describe('so many newest ones'),
  best: count.exactOptional().describe('so many with the best evaluations'),
  every: count.exactOptional().describe('the newest one, and every so-manieth before it'),
  not_yet_evaluated: z
    .boolean()
    .default(false)
    .describe('of these, those on which a suite of the sweep has no result yet'),
});

const suite = z.strictObject({
  name: name.describe(
    'name in tables; `interval` and `final` are the run’s own suites, and say nothing else',
  ),
  split: z.enum(['train', 'held_out']).default('held_out').describe('which part of the data'),
  environments: z.array(text).min(1).exactOptional().describe('tasks of these environments; absent: of all'),
  difficulty: z
    .array(z.number())
    .min(1)
    .exactOptional()
    .describe('tasks of these difficulties; absent: of all'),
  max_tasks: count.max(100_000).exactOptional().describe('the first so many of them; absent: all'),
  samples: count.max(999).default(1).describe('episodes of each task'),
  temperature: z.number().gt(0).max(10).default(1).describe('of sampling'),
  seed: z
    .int()
    .min(0)
    .max(Number.MAX_SAFE_INTEGER)
    .exactOptional()
    .describe('of sampling and of the tasks; absent: that of the run that the suites are of'),
});

const baseline = z.strictObject({
  run: runId.describe('run of the state that all others are compared with'),
  step: step.describe('its step'),
  regression: z
    .number()
    .min(0)
    .max(1)
    .default(0.05)
    .describe('share of pass@1: a state that is surely worse by more raises the alarm'),
});

/** The shortest catch-up window that a server accepts, in seconds. */
const leastCatchUp = 10;

const schedule = z.strictObject({
  cron: z
    .string()
    .exactOptional()
    .describe('minute, hour, day of month, month, day of week; excludes `every`'),
  every: duration(1).exactOptional().describe('time between firings; excludes `cron`'),
  time_zone: z.string().default('UTC').describe('of `cron`, such as `Europe/Berlin`'),
  jitter: duration(0).exactOptional().describe('firings are late by a random time up to this'),
  overlap: z
    .enum(overlapPolicies)
    .default('skip')
    .describe('what happens at a firing while the sweep before it goes on'),
  catch_up: duration(leastCatchUp)
    .default('10m')
    .describe('firings that an outage kept from their time are made up for if they are at most so late'),
});

export const sweepSpecSchema = z.strictObject({
  name: name.describe('name of the sweep, unique in its project'),
  project: name.default('longhaul').describe('project of its runs'),
  data_of: runId
    .exactOptional()
    .describe(
      'run whose data, seed and settings the suites have; absent: the baseline’s, else the first of `checkpoints`',
    ),
  checkpoints: z.array(checkpoints).min(1).describe('what is evaluated'),
  suites: z.array(suite).min(1).describe('on what'),
  baseline: baseline
    .exactOptional()
    .describe('state that all others are compared with; absent: the first one'),
  parallel: count.max(64).default(2).describe('evaluations (a state on a suite) under way at once'),
  schedule: schedule
    .exactOptional()
    .describe('when it starts by itself; absent: only when somebody starts it'),
  again: z
    .literal(true)
    .exactOptional()
    .describe('each start plays all of it again; absent: what has a result is adopted'),
});
