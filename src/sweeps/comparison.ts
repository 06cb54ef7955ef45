// Compares a sweep's states on one suite, side by side and with a baseline. A state's pass@1 is the mean over tasks of the share of graded
// samples that passed; if all samples are graded, that is the share of all episodes. Differences are paired: they use the tasks with graded
// samples on both sides. Unknown outcomes are counted separately and never scored.
import { errorShare } from '../rl/metrics.js';
import type { Digest } from '../spec/records/parts.js';
import type { Place, SkippedCheckpoint, SweepSuiteEntry } from '../spec/records/sweep-record.js';
import { type Counted, passAtK, passAtKs } from '../spec/pass-rate.js';
import { pairedInterval, unseenChange, type Interval } from './bootstrap.js';
import { countedOf, playedSamples, type TaskTally } from './tallies.js';
import { taskChanges, type TaskChange } from './task-changes.js';

export interface PlayedState extends Place {
  state: Digest;
  /** Other places of the same state in the sweep; absent if there are none. */
  also?: readonly Place[];
  /** In the suite's order: made by `emptyTally`, filled by `addEpisode`. */
  tasks: readonly TaskTally[];
}

export interface Figures {
  tasks: number;
  episodes: number;
  graded: number;
  unknown: number;
  /** Number of episodes not played yet. */
  missing: number;
  /** Null if no episode is graded. */
  pass_at_1: number | null;
  /** Over the tasks with at least k graded samples; `value` is null if there are no such tasks. */
  pass_at_k: { k: number; value: number | null; tasks: number }[];
  /** Mean number of turns of the played episodes. */
  mean_turns: number;
  mean_tool_calls: number;
  tool_errors: number;
  /** Share of tool calls that returned an error; null if there were no calls. */
  tool_error_rate: number | null;
}

type Verdict = 'improving' | 'declining' | 'flat' | 'unclear';

/** Mean of a state minus mean of the reference, over `tasks` tasks. */
export interface Difference extends Interval {
  tasks: number;
  estimate: number;
  verdict: Verdict;
}

export type AlarmLevel = 'regressed' | 'suspected' | 'unclear' | 'clear';

interface Versus {
  /** Difference of pass@1, like all members except `largest_k`. Null if no task is graded on both sides. */
  all: Difference | null;
  environments: Record<string, Difference | null>;
  templates: Record<string, Difference | null>;
  /** Difference of pass@k, where k is the number of samples per task, over the tasks with k grades; null if k is 1. */
  largest_k: Difference | null;
  tasks: TaskChange[];
  /** The first scope is all environments, then one for each environment; empty if the sweep names no baseline. */
  alarms: { scope: string; level: AlarmLevel }[];
}

export interface StateComparison extends Place {
  state: Digest;
  /** Same as in `PlayedState`. */
  also?: readonly Place[];
  all: Figures;
  environments: Record<string, Figures>;
  /** Null for the reference itself. */
  versus: Versus | null;
}

export interface SuiteComparison {
  label: string;
  suite: Digest;
  tasks: number;
  samples: number;
  temperature: number;
  /** The state with which the others are compared: the sweep's baseline or else its first state; null if nothing was played. */
  reference: (Place & { state: Digest; named: boolean }) | null;
  /** True if the sweep names a baseline that was not played on this suite: then no alarm can be raised. */
  lacks_baseline: boolean;
  /** A state has regressed if it lost more than this share of pass@1. Null if no baseline is named, or it was not played. */
  regression: number | null;
  states: StateComparison[];
}

/** The comparison of a whole sweep, as it is shown. */
export interface SweepComparison {
  name: string;
  project: string;
  suites: SuiteComparison[];
  skipped: SkippedCheckpoint[];
}

/** Name of the scope that includes all environments. */
export const allEnvironments = 'all';

/** With fewer tasks than this, an interval is unreliable, so no change is claimed. */
const fewestTasks = 10;
/** If an interval reaches further than this to each side, it says nothing even if it contains 0. */
const noticeable = 0.1;

/** The rule in words, for readers of the tables. */
export const verdictRule =
  'improving or declining: the 95 % interval of the difference excludes 0; unclear: the interval contains 0 and is wider than ' +
  `± ${noticeable * 100} points, or there are fewer than ${fewestTasks} tasks; flat: the interval contains 0 and is narrower`;

/** State of the reference, and the loss of pass@1 that the sweep allows, as a share. */
export interface Baseline {
  state: Digest;
  regression: number;
}

/** A comparison without states yet. `reference`: the baseline or else the first played state; null if there is none. */
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

/** Compares one state with `reference`, a state of `suite`. Takes seconds if there are thousands of tasks. */
export function compareState(
  suite: SuiteComparison,
  reference: PlayedState,
  { run, step, state, tasks, ...others }: PlayedState,
): StateComparison {
  const all = figuresOf(tasks, suite.samples);
  const environments: Record<string, Figures> = {};
  for (const [name, of] of byKey(tasks, ({ env_key }) => env_key))
    environments[name] = figuresOf(of, suite.samples);
  const against = state === reference.state ? null : versus(suite, reference, { state, tasks });
  return { run, step, state, ...others, all, environments, versus: against };
}

function figuresOf(tasks: readonly TaskTally[], samples: number): Figures {
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
    pass_at_k: passAtKs(counted, samples),
    mean_turns: per(turns),
    mean_tool_calls: per(calls),
    tool_errors: errors,
    tool_error_rate: errorShare(errors, calls),
  };
}

/** The results of both states on one task. */
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
  // With only one environment, both scopes have the same figures.
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
 * `regressed`: significantly worse by more than `regression`. `clear`: significantly not worse by more than that. `suspected`: the estimate
 * is worse by more than that, but perhaps by chance. `unclear`: any other case.
 */
export function levelOf(difference: Difference | null, regression: number): AlarmLevel {
  if (difference === null || difference.tasks < fewestTasks) return 'unclear';
  const { low, high, estimate } = difference;
  if (high < -regression) return 'regressed';
  if (low > -regression) return 'clear';
  return estimate < -regression ? 'suspected' : 'unclear';
}

/** States that are significantly worse than the baseline by more than the sweep allows, with the scopes in which they are. */
export function regressions({ states }: SuiteComparison): { place: Place; scopes: string[] }[] {
  return states.flatMap(({ run, step, versus: against }) => {
    const scopes = (against?.alarms ?? [])
      .filter(({ level }) => level === 'regressed')
      .map(({ scope }) => scope);
    return scopes.length === 0 ? [] : [{ place: { run, step }, scopes }];
  });
}

/** Items grouped by key, in the order of the keys. */
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
