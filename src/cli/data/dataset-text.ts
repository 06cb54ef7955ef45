// Datasets as text for people.
import { datasetWarnings } from '../../data/dataset-warnings.js';
import type { Exclusion } from '../../data/task-selection.js';
import { trainingTasks, whole } from '../../report/format.js';
import type { DatasetManifest } from '../../spec/records/manifests.js';
import type { GatheredRecord } from '../../spec/records/preparation-records.js';
import type { Task } from '../../spec/records/task.js';
import { textTable } from '../output.js';

export interface DatasetContents {
  manifest: DatasetManifest;
  /** Null for a dataset that was not prepared. */
  gathered: GatheredRecord | null;
  tasks: readonly Task[];
  excluded: readonly Exclusion[];
  /** Number of tasks that the teacher did not solve, by what came of its tries. */
  untaught: Readonly<Record<string, number>>;
}

const shownReasons = 12;
const shownKeys = 5;

/** `2 filter, 1 gate`. */
export function countsText(counts: Readonly<Record<string, number>>): string {
  const entries = Object.entries(counts).filter(([, count]) => count > 0);
  return entries.length === 0 ? 'none' : entries.map(([what, count]) => `${whole(count)} ${what}`).join(', ');
}

const stages: Record<Exclusion['stage'], string> = {
  filter: 'by the selection',
  duplicate: 'repeated keys',
  split: 'over the split’s limits',
  gate: 'failed a check',
  unsolved: 'without a solution',
};

/** `2 by the selection, 1 failed a check`. */
export function excludedText(counts: Readonly<Record<string, number>>): string {
  const named = Object.entries(counts).map(
    ([stage, count]) => [stages[stage as Exclusion['stage']], count] as const,
  );
  return countsText(Object.fromEntries(named));
}

/** `not solved by the teacher: 2 tasks, graded 0 at best in 3 tries`; one line for each reason. */
export function untaughtLines(untaught: Readonly<Record<string, number>>): string[] {
  const entries = Object.entries(untaught);
  const lines = entries.slice(0, shownReasons).map(([reason, count]) => `${tasksText(count)}, ${reason}`);
  const others = entries.slice(shownReasons).reduce((sum, [, count]) => sum + count, 0);
  if (others > 0) lines.push(`${tasksText(others)}, for ${entries.length - shownReasons} more reasons`);
  return lines.map((line) => `not solved by the teacher: ${line}`);
}

/** `failed a check: 2 tasks, doing nothing is graded 1`; one line for each reason. */
export function failedLines(failed: Readonly<Record<string, number>>): string[] {
  return Object.entries(failed).map(([reason, count]) => `failed a check: ${tasksText(count)}, ${reason}`);
}

const tasksText = (count: number): string => `${whole(count)} ${count === 1 ? 'task' : 'tasks'}`;
const wasOrWere = (count: number): string => (count === 1 ? 'was' : 'were');

export function listText(manifests: readonly DatasetManifest[]): string {
  if (manifests.length === 0) return 'no dataset is prepared here; make one: longhaul data prepare FILE';
  return textTable([
    ['DATASET', 'TRAIN', 'HELD OUT', 'LEFT OUT'],
    ...manifests.map(({ name, version, train_tasks, held_out_tasks, prepared }) => [
      `${name}@${version}`,
      whole(train_tasks),
      whole(held_out_tasks),
      excludedText(prepared?.excluded ?? {}),
    ]),
  ]);
}

export function showText({ manifest, gathered, tasks, excluded, untaught }: DatasetContents): string {
  const environments = [...new Set(tasks.map(({ env_key }) => env_key))].sort();
  const sources = (gathered?.sources ?? []).map(
    ({ path, size, sha256 }) => `from ${path}: ${whole(size)} bytes, sha256 ${sha256.slice(0, 12)}`,
  );
  const table = textTable([
    ['ENVIRONMENT', 'TRAIN', 'HELD OUT'],
    ...environments.map((envKey) => {
      const own = tasks.filter(({ env_key }) => env_key === envKey);
      const heldOut = own.filter(({ split }) => split === 'held_out').length;
      return [envKey, whole(own.length - heldOut), whole(heldOut)];
    }),
  ]);
  return [
    `${manifest.name}@${manifest.version}: ${trainingTasks(manifest.train_tasks)}, ${whole(manifest.held_out_tasks)} held out`,
    ...sources,
    `${tasksText(manifest.prepared?.solved ?? 0)} with solutions, given or taught, ${wasOrWere(manifest.prepared?.solved ?? 0)} checked on their environments`,
    ...untaughtLines(untaught),
    `demonstrations, by kind: ${countsText(manifest.demonstrations)}`,
    ...datasetWarnings(tasks).map((warning) => `warning: ${warning}`),
    '',
    table,
    '',
    ...excludedLines(excluded),
  ].join('\n');
}

function excludedLines(excluded: readonly Exclusion[]): string[] {
  if (excluded.length === 0) return ['no task was left out'];
  const groups = new Map<string, Exclusion[]>();
  for (const one of excluded) {
    const key = `${one.stage}\n${one.reason}`;
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  const sorted = [...groups.values()].sort((a, b) => b.length - a.length);
  const rows = sorted.slice(0, shownReasons).map((group) => {
    const [{ stage, reason }] = group as [Exclusion];
    return [whole(group.length), stages[stage], reason, keysText(group.map(({ task_key }) => task_key))];
  });
  const more = sorted.length - rows.length;
  return [
    `${tasksText(excluded.length)} ${wasOrWere(excluded.length)} left out:`,
    textTable([['TASKS', 'LEFT OUT', 'REASON', 'SUCH AS'], ...rows]),
    ...(more > 0 ? [`and ${more} more reasons: see excluded.jsonl (longhaul data export)`] : []),
  ];
}

function keysText(keys: readonly string[]): string {
  return `${keys.slice(0, 2).join(', ')}${keys.length > 2 ? ', …' : ''}`;
}

interface DatasetDiff {
  added: string[];
  removed: string[];
  /** Another prompt, environment, verifier, … */
  changed: string[];
  /** Tasks that were held out and are now trained on: earlier evaluations of them say nothing about a policy trained on this data. */
  to_train: string[];
  to_held_out: string[];
}

export function diffOf(before: readonly Task[], after: readonly Task[]): DatasetDiff {
  const old = new Map(before.map((task) => [task.task_key, task]));
  const fresh = new Map(after.map((task) => [task.task_key, task]));
  const both = after.flatMap((task) => {
    const was = old.get(task.task_key);
    return was ? [{ was, task }] : [];
  });
  const moved = (to: Task['split']) =>
    both
      .filter(({ was, task }) => was.split !== task.split && task.split === to)
      .map(({ task }) => task.task_key);
  const content = ({ split: _, ...task }: Task): string => JSON.stringify(task);
  return {
    added: [...fresh.keys()].filter((key) => !old.has(key)),
    removed: [...old.keys()].filter((key) => !fresh.has(key)),
    changed: both.filter(({ was, task }) => content(was) !== content(task)).map(({ task }) => task.task_key),
    to_train: moved('train'),
    to_held_out: moved('held_out'),
  };
}

export function diffText(before: string, after: string, diff: DatasetDiff): string {
  const words: Record<keyof DatasetDiff, string> = {
    added: `only in ${after}`,
    removed: `only in ${before}`,
    changed: 'other content',
    to_train: 'held out before, trained on now',
    to_held_out: 'trained on before, held out now',
  };
  const rows = (Object.keys(words) as (keyof DatasetDiff)[]).flatMap((key) => {
    const keys = diff[key];
    if (keys.length === 0) return [];
    const shown = `${keys.slice(0, shownKeys).join(', ')}${keys.length > shownKeys ? ', …' : ''}`;
    return [[whole(keys.length), words[key], shown]];
  });
  return rows.length === 0 ? `${before} and ${after} have the same tasks on the same sides` : textTable(rows);
}
