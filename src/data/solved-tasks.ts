// The tasks of a dataset that have a solution: a given one, or the teacher's first success.
import { sha256Hex } from '../base/sha256.js';
import { inParallel } from '../base/in-parallel.js';
import type { GatheredRecord, TaughtRecord } from '../spec/records/manifests.js';
import type { Digest } from '../spec/records/parts.js';
import type { Task } from '../spec/records/task.js';
import { taughtFolder } from '../store/objects/layout.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { recordDigest } from '../store/records/canonical.js';
import { requireRecord } from '../store/records/records.js';
import { jsonItems } from './dataset-writer.js';
import { readAsset } from './run-data.js';
import type { Solution } from './task-file.js';

export interface SolvedTask {
  task: Task;
  solution: Solution;
}

/** Given solutions in the order of their file, then taught ones in that of the tasks. */
export async function solvedTasks(store: ObjectStore, gathered: GatheredRecord): Promise<SolvedTask[]> {
  const { tasks, solutions } = await gatheredItems(store, gathered);
  const byKey = new Map(tasks.map((task) => [task.task_key, task]));
  const given = solutions.flatMap((solution) => {
    const task = byKey.get(solution.task_key);
    return task ? [{ task, solution }] : [];
  });
  if (!gathered.spec.teacher) return given;
  const tries = await triesByTask(store, gathered);
  const hasSolution = new Set(solutions.map(({ task_key }) => task_key));
  const taught = tasks.flatMap((task) => {
    const success = (tries.get(task.task_key) ?? []).find(isSuccess);
    if (!success || hasSolution.has(task.task_key)) return [];
    const { task_key, calls, final_answer } = success;
    return [{ task, solution: { task_key, calls, final_answer } }];
  });
  return [...given, ...taught];
}

export async function gatheredItems(
  store: ObjectStore,
  { files }: GatheredRecord,
): Promise<{ tasks: Task[]; solutions: Solution[] }> {
  const items = async <T>(digest: Digest): Promise<T[]> => jsonItems<T>(await readAsset(store, digest));
  return { tasks: await items<Task>(files.tasks), solutions: await items<Solution>(files.solutions) };
}

export const isSuccess = ({ value }: Pick<TaughtRecord, 'value'>): boolean => value !== null && value >= 1;

/** The teacher's tries of each task, in the order of samples. */
export async function triesByTask(
  store: ObjectStore,
  gathered: GatheredRecord,
): Promise<Map<string, TaughtRecord[]>> {
  const digest = recordDigest(gathered);
  const folder = taughtFolder(gathered.name, gathered.version);
  const keys = (await store.listFolder(folder)).filter((name) => /^[0-9a-f]{32}\.\d+\.json$/.test(name));
  const records = await inParallel(keys, (name) => requireRecord(store, `${folder}${name}`, 'taught'));
  const tries = new Map<string, TaughtRecord[]>();
  for (const record of records.filter((one) => one.gathered === digest)) {
    const own = tries.get(record.task_key);
    if (own) own.push(record);
    else tries.set(record.task_key, [record]);
  }
  for (const own of tries.values()) own.sort((a, b) => a.sample - b.sample);
  return tries;
}

/** The name under which a task's records lie. */
export const taskName = (taskKey: string): Digest => sha256Hex(taskKey);
