// The built-in apps as the server offers them.
import type { Task } from '../../spec/records/task.js';
import type { App } from '../apps/app.js';
import { infrastructureFault, modelFault } from '../apps/faults.js';
import { appByName, appNames } from '../apps/registry.js';
import { formatTaskKey, keyNumbers, splitOf, taskFromKey } from '../apps/task-key.js';
import { openWorld } from '../apps/world.js';
import type { FaultSource, ServedApp } from './app-session.js';

/** How many tasks of each template the task API lists; `task_key` can select any of the others, about a million. */
const listed: Record<Task['split'], number> = { train: 64, held_out: 16 };

export function builtInApps(): ServedApp[] {
  return appNames.map((name) => served(appByName(name)));
}

export const builtInFaults: FaultSource = {
  toolError: ({ seed, turn, rate }) => modelFault(seed, turn, rate) ?? undefined,
  infrastructure: ({ seed, turn, try: tryNumber, rate }) =>
    infrastructureFault(seed, turn, tryNumber, rate) ?? undefined,
};

function served(app: App): ServedApp {
  const keys: Partial<Record<Task['split'], string[]>> = {};
  const keysOf = (split: Task['split']): string[] => (keys[split] ??= listKeys(app, split));
  return {
    name: app.name,
    description: `${app.tools.length} tools on a seeded SQLite database; graded on all of its rows`,
    tools: app.tools,
    task: (key) => (key.startsWith(`${app.name}/`) ? taskFromKey(key) : undefined),
    numTasks: (split) => keysOf(split).length,
    taskAt(split, index) {
      const key = keysOf(split)[index];
      if (key === undefined) throw new RangeError(`${app.name} has no task ${index} in ${split}`);
      return taskFromKey(key);
    },
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

function listKeys(app: App, split: Task['split']): string[] {
  return app.templates.flatMap((template) => {
    const keys: string[] = [];
    for (let number = 0; number < keyNumbers && number < 20 * listed[split]; number++) {
      const key = formatTaskKey(app, template, number);
      if (splitOf(key) === split) keys.push(key);
      if (keys.length === listed[split]) break;
    }
    return keys;
  });
}
