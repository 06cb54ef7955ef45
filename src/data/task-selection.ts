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

/** Throws `NothingSelected`. */
export function selectTasks(tasks: readonly Task[], selection: Selection): Task[] {
  const { modality, env_keys, exclude_envs = [], difficulty, max_tasks = Infinity } = selection;
  const selected = tasks
    .filter((task) => modality === undefined || (task.modality ?? 'tool_use') === modality)
    .filter((task) => env_keys === undefined || env_keys.includes(task.env_key))
    .filter((task) => difficulty === undefined || difficulty.includes(task.difficulty))
    .slice(0, max_tasks)
    .filter((task) => !exclude_envs.includes(task.env_key));
  if (selected.length === 0 && tasks.length > 0)
    throw new NothingSelected(`no task is left of ${tasks.length}: ${contents(tasks)}`);
  return selection.split || selection.held_out_envs ? splitTasks(selected, selection) : selected;
}

function contents(tasks: readonly Task[]): string {
  const list = (of: (task: Task) => string | number): string =>
    [...new Set(tasks.map(of))].sort().slice(0, 20).join(', ');
  return (
    `they have the environments ${list(({ env_key }) => env_key)}; the difficulties ${list(({ difficulty }) => difficulty)}; ` +
    `the modalities ${list(({ modality }) => modality ?? 'tool_use')}`
  );
}

/** Fewer held-out tasks of an environment than this are none. */
const fewestHeldOut = 5;
const mostHeldOutOfEnv = 20;
/** Of each environment, before the others share what is left of `max_held_out`. */
const firstHeldOut = 4;

interface Sides {
  train: Task[];
  heldOut: Task[];
}

/**
 * The split of SkyRL Fleet Training: a task is held out if the hash of its key is below its environment's ratio. A task that
 * lies over a limit is on neither side.
 */
function splitTasks(tasks: readonly Task[], { split, held_out_envs = [] }: Selection): Task[] {
  const { held_out_ratio = 0.2, max_held_out = 60, max_env_share = 0.2 } = split ?? {};
  const environments = new Map<string, Task[]>();
  for (const task of tasks) environments.set(task.env_key, [...(environments.get(task.env_key) ?? []), task]);
  const sides = [...environments.keys()].sort().map((envKey): Sides => {
    const own = environments.get(envKey) ?? [];
    if (held_out_envs.includes(envKey)) return { train: [], heldOut: own };
    // Without a split of the spec's, each task stays on its own side.
    if (!split) return { train: own.filter(isOn('train')), heldOut: own.filter(isOn('held_out')) };
    const target = Math.min(Math.trunc(own.length * held_out_ratio), mostHeldOutOfEnv);
    if (target < fewestHeldOut) return { train: own, heldOut: [] };
    const ratio = target / own.length;
    const isHeldOut = ({ task_key }: Task): boolean => fractionOf(task_key) < ratio;
    return { train: own.filter((task) => !isHeldOut(task)), heldOut: own.filter(isHeldOut) };
  });
  if (split && max_held_out > 0) limitHeldOut(sides, max_held_out);
  // The limit is a share of all training tasks, as they were before it.
  const most = Math.trunc(sides.reduce((sum, { train }) => sum + train.length, 0) * max_env_share);
  return sides.flatMap(({ train, heldOut }) => [
    ...(split && train.length > most ? byFraction(train).slice(0, most) : train).map(on('train')),
    ...heldOut.map(on('held_out')),
  ]);
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
