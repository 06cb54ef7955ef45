// The built-in apps by name.
import type { App } from './app.js';
import { booking } from './booking/booking.js';
import { tracker } from './tracker/tracker.js';

const apps: readonly App[] = [tracker, booking];

/** Raise it with each change of what a tool does, or of how a task is graded: evaluations before and after are then kept apart. */
export const appsVersion = '1';

export const appNames: readonly string[] = apps.map(({ name }) => name);

/** @throws RangeError for a name that no built-in app has. */
export function appByName(name: string): App {
  const app = apps.find((candidate) => candidate.name === name);
  if (!app) throw new RangeError(`no built-in app ${JSON.stringify(name)}; there are ${appNames.join(', ')}`);
  return app;
}
