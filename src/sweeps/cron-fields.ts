// Cron expressions of five fields, as croner reads them: checked before a server sees them, so that a sweep file's problems are reported at
// once. A day must match both day fields if both are restricted, as in Temporal and unlike other crons.
import { Cron, CronPattern } from 'croner';

const shape =
  'five fields: minute, hour, day of month, month, day of week, such as "0 3 * * *" for each day at 3:00';

/** What is wrong with an expression, as a continuation of its path; null if nothing is. `timeZone` is a valid one. */
export function cronProblem(expression: string, timeZone: string): string | null {
  const shown = JSON.stringify(expression.slice(0, 80));
  let next: Date | null;
  try {
    next = new Cron(expression.trim(), { mode: '5-part', timezone: timeZone, domAndDow: true }).nextRun();
  } catch (error) {
    const reason = (error as Error).message.replace(/^CronPattern: |\.$/g, '');
    return `is ${shown}, which is no cron expression (${reason}): write ${shape}`;
  }
  // Temporal refuses these of croner's signs, and reads what follows a "#" as a comment.
  if (/[?LW#+]/i.test(expression.replaceAll(/@\w+|[a-z]{3}/gi, '')))
    return `is ${shown}, but Temporal knows no "?", "L", "W", "#" or "+": write values, ranges and steps`;
  return next === null ? `never fires: no day matches ${shown} in day of month, month and day of week` : null;
}

/** What each of the five fields of an expression without a problem allows, ascending; Sunday is 0. */
export function cronValues(expression: string): number[][] {
  const { minute, hour, day, month, dayOfWeek } = new CronPattern(expression.trim(), undefined, {
    mode: '5-part',
  });
  const allowed = (flags: number[], first = 0) =>
    flags.flatMap((flag, index) => (flag > 0 ? [first + index] : []));
  return [allowed(minute), allowed(hour), allowed(day, 1), allowed(month, 1), allowed(dayOfWeek)];
}
