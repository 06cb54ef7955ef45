// The example apps by name.
import type { App } from './app.js';
import { booking } from './booking/booking.js';
import { mail } from './mail/mail.js';
import { sprints } from './sprints/sprints.js';
import { tickets } from './tickets/tickets.js';
import { tracker } from './tracker/tracker.js';

const apps: readonly App[] = [tracker, booking, mail, sprints, tickets];

/** Increase it with each change of a tool or of grading: evaluations from before and after the change are then kept apart. */
export const appsVersion = '1';

export const appNames: readonly string[] = apps.map(({ name }) => name);

/** @throws RangeError if no example app has this name. */
export function appByName(name: string): App {
  const app = apps.find((candidate) => candidate.name === name);
  if (!app) throw new RangeError(`no example app ${JSON.stringify(name)}; there are ${appNames.join(', ')}`);
  return app;
}
