// All apps of one server: finds the app of a task key, and lists the tasks of the task API.
import type { TaskRow } from '../task-row.js';
import type { ServedApp, TaskLists } from './app-session.js';

export interface SelectedTask {
  app: ServedApp;
  task: TaskRow;
}

interface TaskChoice {
  taskKey?: string | undefined;
  environment?: string | undefined;
  split?: string | undefined;
  index?: number | undefined;
}

export type Catalog = ReturnType<typeof createCatalog>;

export const splits: readonly TaskRow['split'][] = ['train', 'held_out'];

/** `listsOf`: task lists of environments that are no single app. */
export function createCatalog(
  apps: readonly ServedApp[],
  listsOf: (name: string) => TaskLists | undefined = () => undefined,
) {
  const first = apps[0];
  if (!first) throw new Error('the environment server needs at least one app');
  const reserved = ['reset', 'step', 'state', 'close'];
  for (const app of apps) {
    for (const { name } of app.tools) {
      if (reserved.includes(name))
        throw new Error(`${app.name}: the tool name ${name} is reserved by OpenEnv`);
    }
  }
  const names = apps.map((app) => app.name).join(', ');
  const byName = new Map(apps.map((app) => [app.name.toLowerCase(), app]));
  const app = (name: string): ServedApp | undefined => byName.get(name.toLowerCase());
  const lists = (name: string): TaskLists | undefined => app(name) ?? listsOf(name.toLowerCase());
  // A session without a task lists the tools of all apps.
  const tools = new Map(apps.flatMap((served) => served.tools).map((spec) => [spec.name, spec]));

  /** Selects a task. The error says what was wrong, and which values exist. */
  function select({ taskKey, environment, split, index }: TaskChoice): SelectedTask {
    if (taskKey !== undefined) {
      for (const served of apps) {
        const task = served.task(taskKey);
        if (task) return { app: served, task };
      }
      throw new Error(
        `no app of this server has the task ${JSON.stringify(taskKey.slice(0, 200))}; apps: ${names}`,
      );
    }
    const listed = environment === undefined ? first : lists(environment);
    if (!listed)
      throw new Error(`unknown environment ${JSON.stringify(environment)}; this server has ${names}`);
    const chosen = split ?? 'train';
    const count = listed.numTasks(chosen);
    if (count === undefined)
      throw new Error(`unknown split ${JSON.stringify(chosen)}; there are ${splits.join(', ')}`);
    const at = index ?? 0;
    if (at < 0 || at >= count) {
      throw new Error(
        `Invalid task index ${at}; ${environment ?? first!.name} has ${count} tasks in ${chosen}`,
      );
    }
    const task = listed.taskAt(chosen, at);
    return { app: app(task.env_key)!, task };
  }

  return { apps, tools: [...tools.values()], lists, select };
}
