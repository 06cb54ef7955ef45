// The built-in apps, as the server serves them.
import type { App } from '../apps/app.js';
import { infrastructureFault, modelFault } from '../apps/faults.js';
import { appByName, appNames } from '../apps/registry.js';
import { formatTaskKey, taskFromKey } from '../apps/task-key.js';
import { openWorld } from '../apps/world.js';
import type { FaultSource, ServedApp } from './app-session.js';

export function builtInApps(): ServedApp[] {
  return appNames.map((name) => served(appByName(name)));
}

export const builtInFaults: FaultSource = {
  toolError: ({ seed, turn, rate }) => modelFault(seed, turn, rate) ?? undefined,
  infrastructure: ({ seed, turn, try: tryNumber, rate }) =>
    infrastructureFault(seed, turn, tryNumber, rate) ?? undefined,
};

function served(app: App): ServedApp {
  const [first] = app.templates;
  if (!first) throw new Error(`${app.name} has no template`);
  return {
    name: app.name,
    description: `${app.tools.length} tools on a seeded SQLite database; graded on all of its rows`,
    tools: app.tools,
    task: (key) => (key.startsWith(`${app.name}/`) ? taskFromKey(key) : undefined),
    firstTask: () => taskFromKey(formatTaskKey(app, first, 0)),
    open(task) {
      const world = openWorld(task.task_key);
      return {
        call: (name, args) => world.call({ name, arguments: args }),
        grade: () => world.grade(),
        close: () => world.close(),
      };
    },
  };
}
