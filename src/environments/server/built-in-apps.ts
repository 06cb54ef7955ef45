// The apps as the server offers them.
import type { Task } from '../../spec/records/task.js';
import type { App } from '../apps/app.js';
import { infrastructureFault, modelFault } from '../apps/faults.js';
import { type AppChoice, tasksOf } from '../apps/generate.js';
import { appByName, appNames } from '../apps/registry.js';
import { taskFromKey } from '../apps/task-key.js';
import { openWorld } from '../apps/world.js';
import type { FaultSource, ServedApp, TaskLists } from './app-session.js';

/** Number of tasks of a split that names none. `task_key` selects any of about a million. */
const usualCounts: Record<Task['split'], number> = { train: 20_000, held_out: 512 };

export function builtInApps(): ServedApp[] {
  return appNames.map((name) => served(appByName(name)));
}

/** Task lists of several apps in turn (`tracker,booking`), also of wide worlds (`wide/tracker`); undefined if it names something else. */
export function listsOf(name: string): TaskLists | undefined {
  const [, wide, listed = ''] = /^(wide\/)?([a-z,]+)$/.exec(name) ?? [];
  const apps = listed.split(',');
  if (new Set(apps).size < apps.length || apps.some((app) => !appNames.includes(app))) return undefined;
  return taskLists({ apps, seed: 1, ...(wide === undefined ? {} : { profile: 'wide' as const }) });
}

export const builtInFaults: FaultSource = {
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
  const made: Partial<Record<string, { tasks: Task[]; more: Generator<Task> }>> = {};
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

function splitNamed(split: string): { side: Task['split']; count?: number } | undefined {
  const [, side, count] = /^(train|held_out)(?::([1-9]\d{0,5}))?$/.exec(split) ?? [];
  if (side === undefined) return undefined;
  return { side: side as Task['split'], ...(count === undefined ? {} : { count: Number(count) }) };
}
