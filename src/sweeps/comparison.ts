// States of a sweep on one suite, side by side and against a baseline. A state's pass@1 is the mean over tasks of the share of their graded
// samples that passed; if every sample is graded that is the share of all episodes. Differences are paired: over the tasks that have a
// graded sample on both sides. Unknown outcomes are counted apart, and never scored.
import { errorShare } from '../rl/metrics.js';
import type { Digest } from '../spec/records/parts.js';
import type { Place, SkippedCheckpoint, SweepSuiteEntry } from '../spec/records/sweep-record.js';
import { pairedInterval, unseenChange, type Interval } from './bootstrap.js';
import { ksOf, passAtK } from './pass-at-k.js';
import { countedOf, playedSamples, type TaskTally } from './tallies.js';
import { taskChanges, type Counted, type TaskChange } from './task-changes.js';

export interface PlayedState extends Place {
  state: Digest;
  /** Other places of the same state in the sweep; absent: none. */
  also?: readonly Place[];
  /** In the suite's order: `emptyTally` filled by `addEpisode`. */
  tasks: readonly TaskTally[];
}

export interface Figures {
  tasks: number;
  /** Played ones. */
  episodes: number;
  graded: number;
  unknown: number;
  /** Not played yet. */
  missing: number;
  /** Null: no episode is graded. */
  pass_at_1: number | null;
  /** Over the tasks with at least k graded samples; null without one. */
  pass_at_k: { k: number; value: number | null; tasks: number }[];
  /** Mean over played episodes. */
  mean_turns: number;
  mean_tool_calls: number;
  tool_errors: number;
  /** Share of tool calls that returned an error; null: no call. */
  tool_error_rate: number | null;
}

export type Verdict = 'improving' | 'declining' | 'flat' | 'unclear';

/** A state's mean minus the reference's, over `tasks` tasks. */
export interface Difference extends Interval {
  tasks: number;
  estimate: number;
  verdict: Verdict;
}

export type AlarmLevel = 'regressed' | 'suspected' | 'unclear' | 'clear';

export interface Versus {
  /** Difference of pass@1, as in all members but `largest_k`. Null: no task is graded on both sides. */
  all: Difference | null;
  environments: Record<string, Difference | null>;
  templates: Record<string, Difference | null>;
  /** Difference of pass@k with all samples, over the tasks that have all of them graded; null if a task has one. */
  largest_k: Difference | null;
  tasks: TaskChange[];
  /** By environment, and first for all of them; empty if the sweep names no baseline. */
  alarms: { scope: string; level: AlarmLevel }[];
}

export interface StateComparison extends Place {
  state: Digest;
  /** As in `PlayedState`. */
  also?: readonly Place[];
  all: Figures;
  environments: Record<string, Figures>;
  /** Null: this is the reference. */
  versus: Versus | null;
}

export interface SuiteComparison {
  label: string;
  suite: Digest;
  tasks: number;
  samples: number;
  temperature: number;
  /** The reference of the others: the sweep's baseline, else its first state; null if nothing was played. */
  reference: (Place & { state: Digest; named: boolean }) | null;
  /** The sweep names a baseline of which nothing was played here: no alarm can be raised. */
  lacks_baseline: boolean;
  /** Loss of pass@1 above which a state has regressed, as a share; null if no baseline is named, or it is missing. */
  regression: number | null;
  states: StateComparison[];
}

/** A whole sweep, as it is shown. */
export interface SweepComparison {
  name: string;
  project: string;
  suites: SuiteComparison[];
  skipped: SkippedCheckpoint[];
}

/** Scope of figures over all environments. */
export const allEnvironments = 'all';

/** A change counts from this many tasks: with fewer an interval is unreliable. */
export const fewestTasks = 10;
/** If an interval is wider than this to each side, containing 0 says nothing. */
export const noticeable = 0.1;

/** In words, for readers of the tables. */
export const verdictRule =
  'improving or declining: the 95 % interval of the difference leaves out 0; unclear: it holds 0, and is wider than ' +
  `± ${noticeable * 100} points or has fewer than ${fewestTasks} tasks; flat: it holds 0 and is narrower`;

/** State of the reference, and the share of pass@1 by which it may be better. */
export interface Baseline {
  state: Digest;
  regression: number;
}

/** `reference`: the baseline, else the first state that was played; null without one. */
export function emptyComparison(
  { label, record, digest }: SweepSuiteEntry,
  reference: PlayedState | null,
  baseline: Baseline | null,
): SuiteComparison {
  const named = reference !== null && reference.state === baseline?.state;
  return {
    label,
    suite: digest,
    tasks: record.tasks.length,
    samples: record.samples_per_task,
    temperature: record.sampling.temperature,
    reference:
      reference === null ? null : { run: reference.run, step: reference.step, state: reference.state, named },
    lacks_baseline: baseline !== null && !named,
    regression: named ? (baseline?.regression ?? null) : null,
    states: [],
  };
}

/** `reference`: the state of that name in `suite`. Takes seconds where there are thousands of tasks. */
export function compareState(
  suite: SuiteComparison,
  reference: PlayedState,
  { run, step, state, tasks, ...others }: PlayedState,
): StateComparison {
  const ks = ksOf(suite.samples);
  const all = figuresOf(tasks, ks);
  const environments: Record<string, Figures> = {};
  for (const [name, of] of byKey(tasks, ({ env_key }) => env_key)) environments[name] = figuresOf(of, ks);
  const against = state === reference.state ? null : versus(suite, reference, { state, tasks });
  return { run, step, state, ...others, all, environments, versus: against };
}

function figuresOf(tasks: readonly TaskTally[], ks: readonly number[]): Figures {
  const counted: Counted[] = [];
  const sums = { places: 0, episodes: 0, graded: 0, turns: 0, calls: 0, errors: 0 };
  for (const task of tasks) {
    for (const { turns, tool_calls, tool_errors } of playedSamples(task)) {
      sums.episodes += 1;
      sums.turns += turns;
      sums.calls += tool_calls;
      sums.errors += tool_errors;
    }
    const one = countedOf(task);
    sums.places += task.samples.length;
    sums.graded += one.graded;
    if (one.graded > 0) counted.push(one);
  }
  const { places, episodes, graded, turns, calls, errors } = sums;
  const per = (total: number): number => (episodes === 0 ? 0 : total / episodes);
  return {
    tasks: tasks.length,
    episodes,
    graded,
    unknown: episodes - graded,
    missing: places - episodes,
    pass_at_1: meanOf(counted.map((task) => task.passed / task.graded)),
    pass_at_k: ks
      .filter((k) => k > 1)
      .map((k) => {
        const enough = counted.filter((task) => task.graded >= k);
        const value = meanOf(enough.map((task) => passAtK(task.graded, task.passed, k)));
        return { k, value, tasks: enough.length };
      }),
    mean_turns: per(turns),
    mean_tool_calls: per(calls),
    tool_errors: errors,
    tool_error_rate: errorShare(errors, calls),
  };
}

/** A task as both states played it. */
interface Pair {
  before: TaskTally;
  after: TaskTally;
}

function versus(
  { suite, samples, regression }: SuiteComparison,
  reference: PlayedState,
  { state, tasks }: Pick<PlayedState, 'state' | 'tasks'>,
): Versus {
  const pairs = reference.tasks.flatMap((before, slot): Pair[] => {
    const after = tasks[slot];
    return after === undefined ? [] : [{ before, after }];
  });
  const difference = (of: readonly Pair[], scope: string, k = 1): Difference | null =>
    differenceOf(of, k, ['sweep difference', suite, reference.state, state, scope, k]);
  const all = difference(pairs, allEnvironments);
  const environments: Record<string, Difference | null> = {};
  for (const [name, of] of byKey(pairs, ({ before }) => before.env_key))
    environments[name] = difference(of, `environment ${name}`);
  const templates: Record<string, Difference | null> = {};
  for (const [name, of] of byKey(pairs, ({ before }) => before.template))
    templates[name] = difference(of, `template ${name}`);
  const scopes: [string, Difference | null][] = [[allEnvironments, all], ...Object.entries(environments)];
  // One environment alone is all of them.
  const alarmed = scopes.length === 2 ? scopes.slice(0, 1) : scopes;
  const largest_k = samples > 1 ? difference(pairs, allEnvironments, samples) : null;
  return {
    all,
    environments,
    templates,
    largest_k,
    tasks: taskChanges(
      pairs.map(({ before, after }) => ({
        task_key: before.task_key,
        env_key: before.env_key,
        before: countedOf(before),
        after: countedOf(after),
      })),
    ),
    alarms:
      regression === null ? [] : alarmed.map(([scope, one]) => ({ scope, level: levelOf(one, regression) })),
  };
}

function differenceOf(
  pairs: readonly Pair[],
  k: number,
  key: readonly (number | string)[],
): Difference | null {
  const counted = pairs
    .map(({ before, after }) => ({ before: countedOf(before), after: countedOf(after) }))
    .filter(({ before, after }) => before.graded >= k && after.graded >= k);
  const differences = counted.map(
    ({ before, after }) => passAtK(after.graded, after.passed, k) - passAtK(before.graded, before.passed, k),
  );
  const estimate = meanOf(differences);
  if (estimate === null) return null;
  const samples = meanOf(counted.map(({ before, after }) => (before.graded + after.graded) / 2)) ?? 1;
  const interval = pairedInterval(differences, unseenChange(samples / k), key);
  const tasks = differences.length;
  return { tasks, estimate, ...interval, verdict: verdictOf(interval, tasks) };
}

function verdictOf({ low, high }: Interval, tasks: number): Verdict {
  if (tasks < fewestTasks) return 'unclear';
  if (low > 0) return 'improving';
  if (high < 0) return 'declining';
  return (high - low) / 2 > noticeable ? 'unclear' : 'flat';
}

/**
 * `regressed`: significantly worse by more than `regression`; `clear`: significantly not; `suspected`: the estimate is worse, but that may
 * be chance.
 */
export function levelOf(difference: Difference | null, regression: number): AlarmLevel {
  if (difference === null || difference.tasks < fewestTasks) return 'unclear';
  const { low, high, estimate } = difference;
  if (high < -regression) return 'regressed';
  if (low > -regression) return 'clear';
  return estimate < -regression ? 'suspected' : 'unclear';
}

/** States that are significantly worse than the baseline by more than the sweep allows, with the scope. */
export function regressions({ states }: SuiteComparison): { place: Place; scopes: string[] }[] {
  return states.flatMap(({ run, step, versus: against }) => {
    const scopes = (against?.alarms ?? [])
      .filter(({ level }) => level === 'regressed')
      .map(({ scope }) => scope);
    return scopes.length === 0 ? [] : [{ place: { run, step }, scopes }];
  });
}

/** In the order of the keys. */
function byKey<Item>(items: readonly Item[], keyOf: (item: Item) => string): [string, Item[]][] {
  const groups = new Map<string, Item[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
}

function meanOf(values: readonly number[]): number | null {
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length;
}
