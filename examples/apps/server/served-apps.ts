// The apps as the server offers them.
import type { TaskRow } from '../task-row.js';
import type { App } from '../app.js';
import { infrastructureFault, modelFault } from '../faults.js';
import { type AppChoice, tasksOf } from '../generate.js';
import { appByName, appNames } from '../registry.js';
import { taskFromKey } from '../task-key.js';
import { openWorld } from '../world.js';
import type { FaultSource, ServedApp, TaskLists } from './app-session.js';

/** Number of tasks of a split that names none. `task_key` selects any of about a million. */
const usualCounts: Record<TaskRow['split'], number> = { train: 20_000, held_out: 512 };

export function servedApps(): ServedApp[] {
  return appNames.map((name) => served(appByName(name)));
}

/** Task lists of several apps in turn (`tracker,booking`), also of wide worlds (`wide/tracker`); undefined if it names something else. */
export function listsOf(name: string): TaskLists | undefined {
  const [, wide, listed = ''] = /^(wide\/)?([a-z,]+)$/.exec(name) ?? [];
  const apps = listed.split(',');
  if (new Set(apps).size < apps.length || apps.some((app) => !appNames.includes(app))) return undefined;
  return taskLists({ apps, seed: 1, ...(wide === undefined ? {} : { profile: 'wide' as const }) });
}

export const faultsOfApps: FaultSource = {
  toolError: ({ seed, turn, rate }) => modelFault(seed, turn, rate) ?? undefined,
  infrastructure: ({ seed, turn, try: tryNumber, rate }) =>
    infrastructureFault(seed, turn, tryNumber, rate) ?? undefined,
};

function served(app: App): ServedApp {
  return {
    name: app.name,
    description: `${app.tools.length} tools on a seeded SQLite database; graded on all of its rows`,
    tools: app.tools,
    task: (key) => (key.startsWith(`${app.name}/`) ? taskFromKey(key) : undefined),
    ...taskLists({ apps: [app.name], seed: 1 }),
    open(task) {
      const world = openWorld(task.task_key);
      return {
        call: (name, args) => world.call({ name, arguments: args }),
        grade: (finalAnswer) => world.grade(finalAnswer),
        close: () => world.close(),
      };
    },
  };
}

/** Splits are `train` and `held_out`, or the first of their tasks (`train:512`). Tasks are made when they are first asked for. */
function taskLists(choice: AppChoice): TaskLists {
  const made: Partial<Record<string, { tasks: TaskRow[]; more: Generator<TaskRow> }>> = {};
  return {
    numTasks: (split) => {
      const { side, count } = splitNamed(split) ?? {};
      return side && (count ?? usualCounts[side]);
    },
    taskAt(split, index) {
      const { side = 'train' } = splitNamed(split) ?? {};
      const { tasks, more } = (made[side] ??= { tasks: [], more: tasksOf(choice, side) });
      while (tasks.length <= index) {
        const next = more.next();
        if (next.done) break;
        tasks.push(next.value);
      }
      const task = tasks[index];
      if (!task) throw new RangeError(`${choice.apps.join(',')} has no task ${index} in ${split}`);
      return task;
    },
  };
}

function splitNamed(split: string): { side: TaskRow['split']; count?: number } | undefined {
  const [, side, count] = /^(train|held_out)(?::([1-9]\d{0,5}))?$/.exec(split) ?? [];
  if (side === undefined) return undefined;
  return { side: side as TaskRow['split'], ...(count === undefined ? {} : { count: Number(count) }) };
}
