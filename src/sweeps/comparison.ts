// States of a sweep on one suite, side by side and against a baseline. A state's pass@1 is the mean over tasks of the share of their
// graded samples that passed; where every sample is graded that is the share of all episodes. Differences are paired: over the tasks that
// have a graded sample on both sides. Unknown outcomes are counted apart, and never scored.
import type { Digest } from '../spec/records.js';
import type { Place, SkippedCheckpoint, SweepSuiteEntry } from '../spec/sweep-record.js';
import { pairedInterval, unseenChange, type Interval } from './bootstrap.js';
import { ksOf, passAtK } from './pass-at-k.js';
import { countedOf, playedSamples, type TaskTally } from './tallies.js';
import { taskChanges, type TaskChange } from './task-changes.js';

export interface PlayedState extends Place {
  state: Digest;
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
  /** Over the tasks with at least k graded samples; null where there is none. */
  pass_at_k: { k: number; value: number | null; tasks: number }[];
  /** Of played episodes. */
  mean_turns: number;
  mean_tool_calls: number;
  tool_errors: number;
  /** Share of tool calls that were answered by an error; null: no call. */
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
  /** Of pass@1, like all others but `largest_k`. Null: no task is graded on both sides. */
  all: Difference | null;
  environments: Record<string, Difference | null>;
  templates: Record<string, Difference | null>;
  /** Of pass@k with all samples, over the tasks that have all of them graded; null where a task has one. */
  largest_k: Difference | null;
  tasks: TaskChange[];
  /** By environment, and first for all of them; empty where the sweep names no baseline. */
  alarms: { scope: string; level: AlarmLevel }[];
}

export interface StateComparison extends Place {
  state: Digest;
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
  /** What the others are compared with: the sweep's baseline, else its first state; null where nothing was played. */
  reference: (Place & { state: Digest; named: boolean }) | null;
  /** Of pass@1; null where no baseline is named. */
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

/** A change counts from so many tasks on: with fewer an interval covers what it likes. */
export const fewestTasks = 10;
/** Where an interval is wider than this to each side, that it holds 0 says nothing. */
export const noticeable = 0.1;

/** In words, for readers of the tables. */
export const verdictRule =
  'improving or declining: the 95 % interval of the difference leaves out 0; unclear: it does not, and is wider than ' +
  `± ${noticeable * 100} points or has fewer than ${fewestTasks} tasks; flat: it holds 0 and is not`;

/** `baseline`: state that the others are compared with, with the share of pass@1 that it may be better by. */
export function compareStates(
  { label, record, digest }: SweepSuiteEntry,
  states: readonly PlayedState[],
  baseline: { state: Digest; regression: number } | null,
): SuiteComparison {
  const reference =
    (baseline === null ? undefined : states.find(({ state }) => state === baseline.state)) ??
    states[0] ??
    null;
  const named = reference !== null && reference.state === baseline?.state;
  const regression = named ? (baseline?.regression ?? null) : null;
  const ks = ksOf(record.samples_per_task);
  return {
    label,
    suite: digest,
    tasks: record.tasks.length,
    samples: record.samples_per_task,
    temperature: record.sampling.temperature,
    reference:
      reference === null ? null : { run: reference.run, step: reference.step, state: reference.state, named },
    regression,
    states: states.map((one) => ({
      run: one.run,
      step: one.step,
      state: one.state,
      all: figuresOf(one.tasks, ks),
      environments: byKey(
        one.tasks,
        ({ env_key }) => env_key,
        (tasks) => figuresOf(tasks, ks),
      ),
      versus:
        reference === null || one.state === reference.state
          ? null
          : versus(reference, one, digest, record.samples_per_task, regression),
    })),
  };
}

function figuresOf(tasks: readonly TaskTally[], ks: readonly number[]): Figures {
  const samples = tasks.flatMap(playedSamples);
  const counted = tasks.map(countedOf).filter(({ graded }) => graded > 0);
  const sum = (of: (sample: (typeof samples)[number]) => number): number =>
    samples.reduce((total, sample) => total + of(sample), 0);
  const calls = sum(({ tool_calls }) => tool_calls);
  const errors = sum(({ tool_errors }) => tool_errors);
  const per = (total: number): number => (samples.length === 0 ? 0 : total / samples.length);
  const places = tasks.reduce((total, task) => total + task.samples.length, 0);
  const graded = counted.reduce((total, task) => total + task.graded, 0);
  return {
    tasks: tasks.length,
    episodes: samples.length,
    graded,
    unknown: samples.length - graded,
    missing: places - samples.length,
    pass_at_1: meanOf(counted.map((task) => task.passed / task.graded)),
    pass_at_k: ks
      .filter((k) => k > 1)
      .map((k) => {
        const enough = counted.filter((task) => task.graded >= k);
        const value = meanOf(enough.map((task) => passAtK(task.graded, task.passed, k)));
        return { k, value, tasks: enough.length };
      }),
    mean_turns: per(sum(({ turns }) => turns)),
    mean_tool_calls: per(calls),
    tool_errors: errors,
    tool_error_rate: calls === 0 ? null : errors / calls,
  };
}

/** A task as both states played it. */
interface Pair {
  before: TaskTally;
  after: TaskTally;
}

function versus(
  reference: PlayedState,
  state: PlayedState,
  suite: Digest,
  samples: number,
  regression: number | null,
): Versus {
  const pairs = reference.tasks.flatMap((before, slot): Pair[] => {
    const after = state.tasks[slot];
    return after === undefined ? [] : [{ before, after }];
  });
  const difference = (of: readonly Pair[], scope: string, k = 1): Difference | null =>
    differenceOf(of, k, ['sweep difference', suite, reference.state, state.state, scope, k]);
  const all = difference(pairs, allEnvironments);
  const environments = byKey(
    pairs,
    ({ before }) => before.env_key,
    (of, name) => difference(of, `environment ${name}`),
  );
  const scopes: [string, Difference | null][] = [[allEnvironments, all], ...Object.entries(environments)];
  // One environment alone is all of them.
  const alarmed = scopes.length === 2 ? scopes.slice(0, 1) : scopes;
  return {
    all,
    environments,
    templates: byKey(
      pairs,
      ({ before }) => before.template,
      (of, name) => difference(of, `template ${name}`),
    ),
    largest_k: samples > 1 ? difference(pairs, allEnvironments, samples) : null,
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

/** `regressed`: surely worse by more than `regression`; `clear`: surely not; `suspected`: as far as one can see, but that may be chance. */
export function levelOf(difference: Difference | null, regression: number): AlarmLevel {
  if (difference === null || difference.tasks < fewestTasks) return 'unclear';
  const { low, high, estimate } = difference;
  if (high < -regression) return 'regressed';
  if (low > -regression) return 'clear';
  return estimate < -regression ? 'suspected' : 'unclear';
}

/** States that are surely worse than the baseline by more than the sweep allows, with where. */
export function regressions({ states }: SuiteComparison): { place: Place; scopes: string[] }[] {
  return states.flatMap(({ run, step, versus: against }) => {
    const scopes = (against?.alarms ?? [])
      .filter(({ level }) => level === 'regressed')
      .map(({ scope }) => scope);
    return scopes.length === 0 ? [] : [{ place: { run, step }, scopes }];
  });
}

/** What `of` says of the items of each key, by key in order. */
function byKey<Item, Value>(
  items: readonly Item[],
  keyOf: (item: Item) => string,
  of: (items: Item[], key: string) => Value,
): Record<string, Value> {
  const groups = new Map<string, Item[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  const sorted = [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(sorted.map(([key, group]) => [key, of(group, key)]));
}

function meanOf(values: readonly number[]): number | null {
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length;
}
