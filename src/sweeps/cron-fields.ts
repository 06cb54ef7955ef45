// Cron expressions of five fields, checked before a server sees them: it says that one is bad, and we say which field. Let through is
// what Temporal's schedules and croner understand alike. A day must match both day fields where both are restricted, as
// Temporal has it and other crons have not.
import { Cron } from 'croner';

interface Field {
  name: string;
  low: number;
  high: number;
  /** The first one means `low`. */
  names: readonly string[];
}

const months = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const days = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];

const fields: readonly Field[] = [
  { name: 'minute', low: 0, high: 59, names: [] },
  { name: 'hour', low: 0, high: 23, names: [] },
  { name: 'day of month', low: 1, high: 31, names: [] },
  { name: 'month', low: 1, high: 12, names: months },
  { name: 'day of week', low: 0, high: 7, names: days },
];

const shorthands: Readonly<Record<string, string>> = {
  '@hourly': '0 * * * *',
  '@daily': '0 0 * * *',
  '@weekly': '0 0 * * 0',
  '@monthly': '0 0 1 * *',
  '@yearly': '0 0 1 1 *',
};
const cronShorthands = Object.keys(shorthands);
const shape =
  'five fields: minute, hour, day of month, month, day of week, such as "0 3 * * *" for each day at 3:00';

/** What is wrong with an expression, as it goes on after its path; null where nothing is. `timeZone` is known to be one. */
export function cronProblem(expression: string, timeZone: string): string | null {
  const shown = JSON.stringify(expression.slice(0, 80));
  const text = expression.trim();
  if (cronShorthands.includes(text)) return null;
  if (text.startsWith('@')) return `must be one of ${cronShorthands.join(', ')} or ${shape}; it is ${shown}`;
  if (/^(CRON_)?TZ=/.test(text)) return `must not name a time zone: time_zone does; it is ${shown}`;
  const parts = text === '' ? [] : text.split(/\s+/);
  if (parts.length !== fields.length) {
    const seconds = parts.length === 6 ? '; seconds and years are not among them' : '';
    const found = parts.length === 1 ? 'one field' : `${parts.length} fields`;
    return `must have ${shape}; ${shown} has ${found}${seconds}`;
  }
  const problems = fields.flatMap((field, index) => {
    const part = parts[index] ?? '';
    const problem = fieldProblem(part, field);
    return problem === null
      ? []
      : [`field ${index + 1} (${field.name}) is ${JSON.stringify(part)}: ${problem}`];
  });
  if (problems.length > 0) return `is no cron expression: ${problems.join('; ')}`;
  return new Cron(text, { mode: '5-part', timezone: timeZone, domAndDow: true }).nextRun() === null
    ? `never fires: no day matches ${shown} in day, month and day of week`
    : null;
}

/** What each of the five fields of an expression without a problem allows, ascending; Sunday is 0. */
export function cronValues(expression: string): number[][] {
  const text = expression.trim();
  const parts = (shorthands[text] ?? text).split(/\s+/);
  return fields.map((field, index) => {
    const values = (parts[index] ?? '').split(',').flatMap((item) => valuesOf(item, field));
    const shown = field.high === 7 ? values.map((value) => value % 7) : values;
    return [...new Set(shown)].sort((a, b) => a - b);
  });
}

function valuesOf(item: string, field: Field): number[] {
  const [range = '', step = '1'] = item.split('/');
  const [from, to = from] =
    range === '*'
      ? [field.low, field.high]
      : range.split('-').map((end) => valueOf(end, field) ?? Number.NaN);
  return rangeOf(from ?? Number.NaN, to ?? Number.NaN, Number(step));
}

/** From `from` to at most `to`. */
export function rangeOf(from: number, to: number, step: number): number[] {
  return Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, index) => from + index * step);
}

function fieldProblem(text: string, field: Field): string | null {
  for (const item of text.split(',')) {
    const problem = itemProblem(item, field);
    if (problem !== null) return problem;
  }
  return null;
}

/** One of `*`, `n`, `a-b`, each of the first and last also with `/step`. */
function itemProblem(item: string, field: Field): string | null {
  const { low, high } = field;
  const allowed = `${low} to ${high}${field.names.length > 0 ? `, or ${field.names[0]} to ${field.names.at(-1)}` : ''}`;
  if (item === '') return `an entry is empty; write values from ${allowed} with single commas between`;
  const [range = '', step, ...rest] = item.split('/');
  if (rest.length > 0) return 'it has more than one "/"';
  if (step !== undefined) {
    const size = /^\d+$/.test(step) ? Number(step) : NaN;
    if (!(size >= 1 && size <= high - low + 1))
      return `the step "${step}" must be a whole number from 1 to ${high - low + 1}`;
    if (range !== '*' && !range.includes('-'))
      return `a step follows * or a range: write ${range}-${high}/${step}`;
  }
  if (range === '*') return null;
  if (/[?LW#]/.test(range.replaceAll(/[a-z]{3}/gi, '')))
    return 'Temporal knows no "?", "L", "W" or "#": write *, values, ranges or steps';
  const ends = range.split('-');
  if (ends.length > 2) return `"${range}" is no range such as ${low}-${high}`;
  const values = ends.map((end) => valueOf(end, field));
  const wrong = ends.find((_, index) => values[index] === null);
  if (wrong !== undefined) return `"${wrong}" must be ${allowed}`;
  const [from, to] = values;
  if (typeof from === 'number' && typeof to === 'number' && from > to)
    return `the range ${range} ends before it begins: write two of them, with a comma between`;
  return null;
}

function valueOf(text: string, { low, high, names }: Field): number | null {
  const named = names.indexOf(text.toLowerCase());
  if (named >= 0) return low + named;
  if (!/^\d{1,2}$/.test(text)) return null;
  const value = Number(text);
  return value >= low && value <= high ? value : null;
}
