// When a schedule fires, in one form for its two sources: a sweep file, and a server, which writes crons as ranges.
import type { ScheduleDescription } from '@temporalio/client';
import { millisecondsOf, type SweepScheduleSpec } from '../spec/sweep-spec.js';
import { cronValues } from './cron-fields.js';

interface FiringTimes {
  /** For each calendar: the allowed seconds, then the allowed values of each cron field. */
  calendars: number[][][];
  /** Length and offset, in milliseconds. */
  intervals: [every: number, offset: number][];
  /** Time zone of the calendars; may be an empty string. */
  time_zone: string;
  jitterMs: number;
  /** True if the schedule has parts that no sweep file can ask for: years, excluded times, a first or a last time. */
  bounded: boolean;
}

type Shown = ScheduleDescription['spec'];
type Calendar = NonNullable<Shown['calendars']>[number];

const months = [
  ...['JANUARY', 'FEBRUARY', 'MARCH', 'APRIL', 'MAY', 'JUNE'],
  ...['JULY', 'AUGUST', 'SEPTEMBER', 'OCTOBER', 'NOVEMBER', 'DECEMBER'],
];
const days = ['SUNDAY', 'MONDAY', 'TUESDAY', 'WEDNESDAY', 'THURSDAY', 'FRIDAY', 'SATURDAY'];

export function timesAsked({ cron, every = '', time_zone, jitter }: SweepScheduleSpec): FiringTimes {
  return {
    ...(cron === undefined
      ? { calendars: [], intervals: [[millisecondsOf(every), 0]], time_zone: '' }
      : { calendars: [[[0], ...cronValues(cron)]], intervals: [], time_zone }),
    jitterMs: jitter === undefined ? 0 : millisecondsOf(jitter),
    bounded: false,
  };
}

export function timesShown(spec: Shown): FiringTimes {
  const { calendars = [], intervals = [], skip = [], timezone = '', jitter = 0, startAt, endAt } = spec;
  const years = calendars.some(({ year }) => year.length > 0);
  return {
    calendars: calendars.map(fieldsOf),
    intervals: intervals.map(({ every, offset = 0 }) => [every, offset]),
    time_zone: calendars.length === 0 ? '' : timezone,
    jitterMs: jitter,
    bounded: years || skip.length > 0 || startAt !== undefined || endAt !== undefined,
  };
}

function fieldsOf({ second, minute, hour, dayOfMonth, month, dayOfWeek }: Calendar): number[][] {
  return [
    ...[second, minute, hour, dayOfMonth].map((ranges) => valuesOf(ranges, (value) => value)),
    valuesOf(month, (name) => months.indexOf(name) + 1),
    valuesOf(dayOfWeek, (name) => days.indexOf(name)),
  ];
}

function valuesOf<T>(
  ranges: readonly { start: T; end: T; step: number }[],
  numberOf: (value: T) => number,
): number[] {
  const values = ranges.flatMap(({ start, end, step }) => {
    const from = numberOf(start);
    return Array.from(
      { length: Math.floor((numberOf(end) - from) / step) + 1 },
      (_, index) => from + index * step,
    );
  });
  return [...new Set(values)].sort((a, b) => a - b);
}
