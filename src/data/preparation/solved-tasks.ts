// The tasks of a dataset that have a solution: a given one, or the teacher's first success.
import { sha256Hex } from '../../base/sha256.js';
import { inParallel } from '../../base/in-parallel.js';
import { RecentlyUsed } from '../../base/recently-used.js';
import type { GatheredRecord, TaughtRecord } from '../../spec/records/preparation-records.js';
import type { Digest } from '../../spec/records/parts.js';
import type { Task } from '../../spec/records/task.js';
import { isPass } from '../../rl/episode-reward.js';
import { taughtKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { recordDigest } from '../../store/records/canonical.js';
import { readRecord } from '../../store/records/records.js';
import { jsonItems } from '../dataset-writer.js';
import { readAsset } from '../run-data.js';
import type { Solution } from '../task-file.js';

interface SolvedTask {
  task: Task;
  solution: Solution;
  isTaught: boolean;
}

interface GatheredItems {
  tasks: readonly Task[];
  /** Given solutions by task. */
  solutions: ReadonlyMap<string, Solution>;
}

/** Kept because the activities of a preparation need them repeatedly, and gathered items never change. */
const recent = new RecentlyUsed<GatheredItems>(2);

export function gatheredItems(store: ObjectStore, gathered: GatheredRecord): Promise<GatheredItems> {
  return recent.get(recordDigest(gathered), async () => {
    const { files } = gathered;
    const items = async <T>(digest: Digest): Promise<T[]> => jsonItems<T>(await readAsset(store, digest));
    const solutions = await items<Solution>(files.solutions);
    return {
      tasks: await items<Task>(files.tasks),
      solutions: new Map(solutions.map((solution) => [solution.task_key, solution])),
    };
  });
}

/** The solved tasks among `from`, …, `to` − 1, in the order of the file. */
export async function solvedTasks(
  store: ObjectStore,
  gathered: GatheredRecord,
  from = 0,
  to = Infinity,
): Promise<SolvedTask[]> {
  const { tasks, solutions } = await gatheredItems(store, gathered);
  const found = await inParallel(tasks.slice(from, to), async (task): Promise<SolvedTask[]> => {
    const given = solutions.get(task.task_key);
    if (given) return [{ task, solution: given, isTaught: false }];
    const success = (await triesOf(store, gathered, task.task_key)).find(isSuccess);
    if (!success) return [];
    const { task_key, calls, final_answer } = success;
    return [{ task, solution: { task_key, calls, final_answer }, isTaught: true }];
  });
  return found.flat();
}

export const isSuccess = ({ value }: Pick<TaughtRecord, 'value'>): boolean => value !== null && isPass(value);

/** The number of tasks that the teacher did not solve, by the result of their tries. Empty without a teacher. */
export async function untaughtReasons(
  store: ObjectStore,
  gathered: GatheredRecord,
): Promise<Record<string, number>> {
  if (!gathered.spec.teacher) return {};
  const { tasks, solutions } = await gatheredItems(store, gathered);
  const unsolved = tasks.filter(({ task_key }) => !solutions.has(task_key));
  const counts: Record<string, number> = {};
  await inParallel(unsolved, async ({ task_key }) => {
    const tries = await triesOf(store, gathered, task_key);
    if (tries.some(isSuccess)) return;
    const reason = whyUntaught(tries);
    counts[reason] = (counts[reason] ?? 0) + 1;
  });
  return Object.fromEntries(Object.entries(counts).sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1)));
}

/** The result of a task's tries, in words that are equal for tasks with the same result. */
function whyUntaught(tries: readonly Pick<TaughtRecord, 'value' | 'reason' | 'calls'>[]): string {
  if (tries.length === 0) return 'not tried: the budget was spent before';
  const times = tries.length === 1 ? 'in one try' : `in ${tries.length} tries`;
  const values = tries.flatMap(({ value }) => value ?? []);
  if (values.length === 0) return `no grade ${times}: ${tries.at(-1)?.reason ?? 'no reason is known'}`;
  const acted = tries.some(({ calls }) => calls.length > 0);
  return `graded ${Math.max(...values)} at best ${times}${acted ? '' : ', none of which called a tool'}`;
}

/** The teacher's tries of a task, in the order of samples. */
export async function triesOf(
  store: ObjectStore,
  gathered: GatheredRecord,
  taskKey: string,
): Promise<TaughtRecord[]> {
  const tries: TaughtRecord[] = [];
  if (!gathered.spec.teacher) return tries;
  const { name, version } = gathered;
  for (;;) {
    const record = await readRecord(
      store,
      taughtKey(name, version, taskName(taskKey), tries.length),
      'taught',
    );
    if (record === null) return tries;
    tries.push(record);
  }
}

/** The name under which a task's records lie. */
export const taskName = (taskKey: string): Digest => sha256Hex(taskKey);
