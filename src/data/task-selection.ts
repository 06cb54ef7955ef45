// Which tasks of a file a run takes, and which of them it holds out: pure functions of the spec and the rows.
import { createHash } from 'node:crypto';
import type { DataSpec } from '../spec/run-spec.js';
import type { Task } from '../spec/records/task.js';

type Selection = Pick<
  DataSpec,
  'modality' | 'env_keys' | 'exclude_envs' | 'difficulty' | 'max_tasks' | 'held_out_envs' | 'split'
>;

/** A spec that selects no task, with what there is. */
export class NothingSelected extends Error {
  override readonly name = 'NothingSelected';
}

/** A task that a run does not get, and why. */
export interface Exclusion {
  task_key: string;
  /**
   * `filter` and `split` follow from the spec, `duplicate` from the file; `gate`: the task failed a check on its environment; `unsolved`: it
   * has no solution.
   */
  stage: 'filter' | 'duplicate' | 'split' | 'gate' | 'unsolved';
  reason: string;
  /** Its side in the dataset whose split is frozen. */
  split?: Task['split'];
}

/** Throws `NothingSelected`. `excluded`: receives each task that is left out. */
export function selectTasks(
  tasks: readonly Task[],
  selection: Selection,
  excluded: Exclusion[] = [],
): Task[] {
  const selected = filterTasks(tasks, selection, excluded);
  return splitTasks(selected, selection, excluded);
}

/** The selected tasks, in the file's order, each still on the side that its row names. Throws `NothingSelected`. */
export function filterTasks(
  tasks: readonly Task[],
  { modality, env_keys, exclude_envs = [], difficulty, max_tasks = Infinity }: Selection,
  excluded: Exclusion[] = [],
): Task[] {
  const keys = new Set<string>();
  let taken = 0;
  const without = (task: Task): Omit<Exclusion, 'task_key'> | null => {
    const filter = (reason: string) => ({ stage: 'filter', reason }) as const;
    const { env_key, task_key } = task;
    const kind = task.modality ?? 'tool_use';
    if (modality !== undefined && kind !== modality) return filter(`modality ${kind}`);
    if (env_keys !== undefined && !env_keys.includes(env_key)) return filter(`environment ${env_key}`);
    if (difficulty !== undefined && !difficulty.includes(task.difficulty))
      return filter(`difficulty ${task.difficulty}`);
    if (taken >= max_tasks) return filter(`beyond the first ${max_tasks} tasks`);
    taken += 1;
    // In the order of SkyRL Fleet Training, where a repeated key and an excluded environment count in `max_tasks`.
    if (keys.has(task_key)) return { stage: 'duplicate', reason: 'an earlier row has this key' };
    keys.add(task_key);
    if (exclude_envs.includes(env_key)) return filter(`environment ${env_key}`);
    return null;
  };
  const selected = tasks.filter((task) => {
    const reason = without(task);
    if (reason) excluded.push({ task_key: task.task_key, ...reason });
    return reason === null;
  });
  if (selected.length === 0 && tasks.length > 0)
    throw new NothingSelected(`no task is left of ${tasks.length}: ${contents(tasks)}`);
  return selected;
}

function contents(tasks: readonly Task[]): string {
  const list = (of: (task: Task) => string | number): string =>
    [...new Set(tasks.map(of))].sort().slice(0, 20).join(', ');
  return (
    `they have the environments ${list(({ env_key }) => env_key)}; the difficulties ${list(({ difficulty }) => difficulty)}; ` +
    `the modalities ${list(({ modality }) => modality ?? 'tool_use')}`
  );
}

/** If an environment would have fewer held-out tasks than this, it has none. */
const fewestHeldOut = 5;
const mostHeldOutOfEnv = 20;
/** Each environment first gets so many held-out tasks; then the environments share the rest of `max_held_out`. */
const firstHeldOut = 4;

interface Sides {
  train: Task[];
  heldOut: Task[];
}

/**
 * The split of SkyRL Fleet Training: a task is held out if the hash of its key is below its environment's ratio. A task that
 * lies over a limit is on neither side.
 */
export function splitTasks(
  tasks: readonly Task[],
  { split, held_out_envs = [] }: Pick<Selection, 'split' | 'held_out_envs'>,
  excluded: Exclusion[] = [],
): Task[] {
  if (!split && held_out_envs.length === 0) return [...tasks];
  const { held_out_ratio, max_held_out, max_env_share } = { ...usualSplit, ...split };
  const sides = byEnvironment(tasks).map(([envKey, own]): Sides => {
    if (held_out_envs.includes(envKey)) return { train: [], heldOut: own };
    // Without a split in the spec, each task's row decides its side.
    if (!split) return sidesByRow(own);
    return sidesByHash(own, held_out_ratio);
  });
  if (split) {
    const reason = `over the limits of the split: max_held_out ${max_held_out}, max_env_share ${max_env_share}`;
    const drop = (before: readonly Task[], after: readonly Task[]): void => {
      const kept = new Set(after);
      for (const task of before)
        if (!kept.has(task)) excluded.push({ task_key: task.task_key, stage: 'split', reason });
    };
    const heldOut = sides.map((side) => side.heldOut);
    if (max_held_out > 0) limitHeldOut(sides, max_held_out);
    for (const [index, side] of sides.entries()) drop(heldOut[index] ?? [], side.heldOut);
    // The limit is a share of the number of training tasks before any are dropped.
    const most = Math.trunc(sides.reduce((sum, { train }) => sum + train.length, 0) * max_env_share);
    for (const side of sides.filter(({ train }) => train.length > most)) {
      const { train } = side;
      side.train = byFraction(train).slice(0, most);
      drop(train, side.train);
    }
  }
  return joined(sides);
}

/**
 * Tasks of an earlier version of the data keep their side. A new task is held out if its hash is below the ratio; if the ratio is null, its row
 * decides. No limits apply, because they could move known tasks.
 */
export function splitAsBefore(
  tasks: readonly Task[],
  known: ReadonlyMap<string, Task['split']>,
  heldOutRatio: number | null,
): Task[] {
  return joined(
    byEnvironment(tasks).map(([, own]) => {
      const isKnown = (side: Task['split']) => (task: Task) => known.get(task.task_key) === side;
      const fresh = own.filter(({ task_key }) => !known.has(task_key));
      const added = heldOutRatio === null ? sidesByRow(fresh) : sidesByHash(fresh, heldOutRatio);
      return {
        train: [...own.filter(isKnown('train')), ...added.train],
        heldOut: [...own.filter(isKnown('held_out')), ...added.heldOut],
      };
    }),
  );
}

const usualSplit = { held_out_ratio: 0.2, max_held_out: 60, max_env_share: 0.2 };

function byEnvironment(tasks: readonly Task[]): [string, Task[]][] {
  const environments = new Map<string, Task[]>();
  for (const task of tasks) {
    const own = environments.get(task.env_key);
    if (own) own.push(task);
    else environments.set(task.env_key, [task]);
  }
  return [...environments].sort(([a], [b]) => (a < b ? -1 : 1));
}

function sidesByRow(tasks: readonly Task[]): Sides {
  return { train: tasks.filter(isOn('train')), heldOut: tasks.filter(isOn('held_out')) };
}

/** `ratio`: share of the tasks that the hash of their key holds out. */
function sidesByHash(tasks: readonly Task[], ratio: number): Sides {
  const target = Math.min(Math.trunc(tasks.length * ratio), mostHeldOutOfEnv);
  if (target < fewestHeldOut) return { train: [...tasks], heldOut: [] };
  const isHeldOut = ({ task_key }: Task): boolean => fractionOf(task_key) < target / tasks.length;
  return { train: tasks.filter((task) => !isHeldOut(task)), heldOut: tasks.filter(isHeldOut) };
}

/** Environment by environment, first those that are trained on. */
function joined(sides: readonly Sides[]): Task[] {
  return sides.flatMap(({ train, heldOut }) => [...train.map(on('train')), ...heldOut.map(on('held_out'))]);
}

/** Environments take turns, each with its lowest hashes first. */
function limitHeldOut(sides: Sides[], most: number): void {
  if (sides.reduce((sum, { heldOut }) => sum + heldOut.length, 0) <= most) return;
  const ordered = sides.map(({ heldOut }) => byFraction(heldOut));
  const taken = ordered.map((tasks) => Math.min(firstHeldOut, tasks.length));
  let left = most - taken.reduce((sum, one) => sum + one, 0);
  while (left > 0) {
    const before = left;
    for (const [index, tasks] of ordered.entries()) {
      if (left <= 0 || (taken[index] ?? 0) >= tasks.length) continue;
      taken[index] = (taken[index] ?? 0) + 1;
      left -= 1;
    }
    if (left === before) break;
  }
  for (const [index, side] of sides.entries()) side.heldOut = ordered[index]?.slice(0, taken[index]) ?? [];
}

const isOn =
  (side: Task['split']) =>
  ({ split }: Task): boolean =>
    split === side;

const on =
  (split: Task['split']) =>
  (task: Task): Task => ({ ...task, split });

function byFraction(tasks: readonly Task[]): Task[] {
  const fractions = new Map(tasks.map((task) => [task, fractionOf(task.task_key)]));
  return [...tasks].sort((a, b) => (fractions.get(a) ?? 0) - (fractions.get(b) ?? 0));
}

/** In [0, 1): the first 8 bytes of the key's MD5, big-endian. */
export function fractionOf(taskKey: string): number {
  return Number(createHash('md5').update(taskKey).digest().readBigUInt64BE(0)) / 2 ** 64;
}
