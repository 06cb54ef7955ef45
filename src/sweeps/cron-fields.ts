// Cron expressions of five fields, as croner reads them. They are checked before a server sees them, so that all problems of a sweep file
// are reported at once. If both day fields are restricted, a day must match both, as in Temporal; in other crons it must match only one of
// them.
import { Cron, CronPattern } from 'croner';

const shape =
  'five fields: minute, hour, day of month, month, day of week, such as "0 3 * * *" for each day at 3:00';

/** What is wrong with an expression, as the rest of a sentence that begins with its path; null if nothing is. `timeZone` must be valid. */
export function cronProblem(expression: string, timeZone: string): string | null {
  const shown = JSON.stringify(expression.slice(0, 80));
  let next: Date | null;
  try {
    next = new Cron(expression.trim(), { mode: '5-part', timezone: timeZone, domAndDow: true }).nextRun();
  } catch (error) {
    const reason = (error as Error).message.replace(/^CronPattern: |\.$/g, '');
    return `is ${shown}, which is not a cron expression (${reason}): write ${shape}`;
  }
  // Temporal refuses these characters, which croner accepts, and takes text after a "#" for a comment.
  if (/[?LW#+]/i.test(expression.replaceAll(/@\w+|[a-z]{3}/gi, '')))
    return `is ${shown}, but Temporal does not support "?", "L", "W", "#" or "+": write values, ranges and steps`;
  return next === null ? `never fires: no day matches ${shown} in day of month, month and day of week` : null;
}

/** The values that each of the five fields allows, ascending; Sunday is 0. The expression must have no problem. */
export function cronValues(expression: string): number[][] {
  const { minute, hour, day, month, dayOfWeek } = new CronPattern(expression.trim(), undefined, {
    mode: '5-part',
  });
  const allowed = (flags: number[], first = 0) =>
    flags.flatMap((flag, index) => (flag > 0 ? [first + index] : []));
  return [allowed(minute), allowed(hour), allowed(day, 1), allowed(month, 1), allowed(dayOfWeek)];
}
