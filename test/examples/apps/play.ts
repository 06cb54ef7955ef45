// Plays calls in the worlds of the apps' tasks.
import { appByName, appNames } from '../../../examples/apps/registry.js';
import { formatTaskKey } from '../../../examples/apps/task-key.js';
import { openWorld, type World } from '../../../examples/apps/world.js';
import type { App, Profile, TaskTemplate } from '../../../examples/apps/app.js';
import type { ToolCall } from '../../../src/spec/records/task.js';

export const apps: App[] = appNames.map(appByName);

export const templates: { app: App; template: TaskTemplate; name: string }[] = apps.flatMap((app) =>
  app.templates.map((template) => ({ app, template, name: `${app.name}/${template.name}` })),
);

/** `count` task keys of a template; their numbers are far apart. */
export function someKeys(
  app: App,
  template: TaskTemplate,
  count: number,
  profile: Profile = 'default',
): string[] {
  return Array.from({ length: count }, (_, i) =>
    formatTaskKey(app, template, (i * 7919 + 1) % 1_000_000, profile),
  );
}

export function inWorld<T>(key: string, body: (world: World) => T): T {
  const world = openWorld(key);
  try {
    return body(world);
  } finally {
    world.close();
  }
}

export function play(key: string, calls: readonly ToolCall[], finalAnswer = '') {
  return inWorld(key, (world) => {
    const results = calls.map((call) => world.call(call));
    return { results, grade: world.grade(finalAnswer), dump: Object.fromEntries(world.dump()) };
  });
}

/** The rows of a table as objects. */
export function rowsOf(world: World, table: string): Record<string, string | number | null>[] {
  const columns = Object.keys(world.app.tables.find(({ name }) => name === table)?.columns ?? {});
  const rows = JSON.parse(world.dump().get(table) ?? '[]') as (string | number | null)[][];
  return rows.map((row) => Object.fromEntries(columns.map((column, i) => [column, row[i] ?? null])));
}

export function answer(world: World, name: string, args: Record<string, unknown>): Record<string, unknown> {
  return JSON.parse(world.call({ name, arguments: args }).text) as Record<string, unknown>;
}
