// Makes a Temporal Schedule from a sweep. The schedule's id follows from the sweep's name. The digest of its inputs is in the memo of the
// workflows it starts, because a schedule's own memo cannot be updated. Applying the same file twice finds the same digest and times, and
// changes nothing. Changes by hand are reverted; a pause, like all other state of the schedule, survives an update.
import type {
  Backfill,
  ScheduleDescription,
  ScheduleOptions,
  ScheduleSpec,
  ScheduleUpdateOptions,
} from '@temporalio/client';
import type { Digest } from '../spec/records/parts.js';
import { canonicalText, recordDigest } from '../store/records/canonical.js';
import { timesAsked, timesShown } from './firing-times.js';
import { isPattern, millisecondsOf, type SweepScheduleSpec, type SweepSpec } from '../spec/sweep-spec.js';

/** What the schedule starts when it fires. */
export interface SweepTarget {
  workflowType: string;
  taskQueue: string;
}

export type ScheduleChange =
  | { kind: 'create'; options: ScheduleOptions }
  /** `update` is for `ScheduleHandle.update`, which calls it again if another update came first. */
  | { kind: 'update'; update: (previous: ScheduleDescription) => ScheduleUpdateOptions }
  /** The file no longer asks for a schedule. */
  | { kind: 'delete' }
  | { kind: 'unchanged' };

const digestMemo = 'longhaul_sweep_digest';

/** `sweep/{project}/{name}` */
export function scheduleIdOf({ project, name }: Pick<SweepSpec, 'project' | 'name'>): string {
  return `sweep/${project}/${name}`;
}

/** Project and name from a schedule's id; null if the schedule is not a sweep's. */
export function sweepOfScheduleId(id: string): Pick<SweepSpec, 'project' | 'name'> | null {
  const match = /^sweep\/([^/]+)\/([^/]+)$/.exec(id);
  return match ? { project: match[1] as string, name: match[2] as string } : null;
}

/** What to do with the existing schedule (null if there is none) to apply `spec`. */
export function scheduleChange(
  spec: SweepSpec,
  existing: ScheduleDescription | null,
  target: SweepTarget,
): ScheduleChange {
  const { schedule } = spec;
  if (schedule === undefined) return existing === null ? { kind: 'unchanged' } : { kind: 'delete' };
  const options = scheduleOptions(spec, schedule, target);
  if (existing === null) return { kind: 'create', options };
  if (isAsApplied(existing, { spec, ...target }, options, schedule)) return { kind: 'unchanged' };
  return { kind: 'update', update: (previous) => updateOf(options, previous) };
}

/** Digest of the schedule's inputs, from the memo of its action; null if that memo has none. */
export function appliedDigest({ action }: ScheduleDescription): Digest | null {
  const digest = action.memo?.[digestMemo];
  return typeof digest === 'string' ? digest : null;
}

/** A change by hand keeps the memo, so times, policies and input are compared too. */
function isAsApplied(
  existing: ScheduleDescription,
  { spec, workflowType, taskQueue }: { spec: SweepSpec } & SweepTarget,
  { action, policies }: ScheduleOptions,
  schedule: SweepScheduleSpec,
): boolean {
  const same = (one: unknown, other: unknown): boolean => canonicalText(one) === canonicalText(other);
  return (
    appliedDigest(existing) === action.memo?.[digestMemo] &&
    existing.action.workflowType === workflowType &&
    existing.action.taskQueue === taskQueue &&
    same(existing.action.args ?? [], [spec]) &&
    same(existing.policies, policies) &&
    same(timesShown(existing.spec), timesAsked(schedule))
  );
}

/** Options for `ScheduleClient.create`. */
function scheduleOptions(spec: SweepSpec, schedule: SweepScheduleSpec, target: SweepTarget): ScheduleOptions {
  return {
    scheduleId: scheduleIdOf(spec),
    spec: timesOf(schedule),
    action: {
      type: 'startWorkflow',
      workflowType: target.workflowType,
      taskQueue: target.taskQueue,
      // The server appends the time of the firing.
      workflowId: `eval/${spec.project}/${spec.name}`,
      args: [spec],
      memo: { [digestMemo]: recordDigest({ spec, ...target }) },
      staticSummary: summaryOf(spec),
    },
    policies: {
      overlap: overlaps[schedule.overlap],
      // The server's default is a year: after an outage of a day, all firings of that day would run at once.
      catchupWindow: millisecondsOf(schedule.catch_up),
      // A night without nodes must not end all later sweeps.
      pauseOnFailure: false,
    },
    memo: { longhaul: 'sweep' },
  };
}

/** For `ScheduleHandle.backfill`: runs the firings between two times, one after the other, whatever the schedule's overlap policy. */
export function backfillOf(start: Date, end: Date): Backfill {
  if (!(start.getTime() < end.getTime())) {
    throw new RangeError(
      `a backfill from ${timeText(start)} to ${timeText(end)} has no firings: its end must come after its beginning`,
    );
  }
  return { start, end, overlap: 'BUFFER_ALL' };
}

const overlaps = {
  skip: 'SKIP',
  buffer_one: 'BUFFER_ONE',
  buffer_all: 'BUFFER_ALL',
  cancel_other: 'CANCEL_OTHER',
  terminate_other: 'TERMINATE_OTHER',
  allow_all: 'ALLOW_ALL',
} as const satisfies Record<SweepScheduleSpec['overlap'], Backfill['overlap']>;

function timesOf({ cron, every, time_zone, jitter }: SweepScheduleSpec): ScheduleSpec {
  return {
    ...(cron === undefined
      ? { intervals: [{ every: millisecondsOf(every ?? '') }] }
      : { cronExpressions: [cron.trim()], timezone: time_zone }),
    ...(jitter === undefined ? {} : { jitter: millisecondsOf(jitter) }),
  };
}

function updateOf(
  options: ScheduleOptions,
  { state, typedSearchAttributes }: ScheduleDescription,
): ScheduleUpdateOptions {
  const { spec, action, policies } = options;
  const { paused, note, remainingActions } = state;
  return {
    spec,
    action,
    ...(policies === undefined ? {} : { policies }),
    typedSearchAttributes,
    state: {
      paused,
      ...(note === undefined ? {} : { note }),
      ...(remainingActions === undefined ? {} : { remainingActions }),
    },
  };
}

function summaryOf({ name, checkpoints, suites }: SweepSpec): string {
  const runs = [...new Set(checkpoints.map(({ run }) => run))];
  const several = runs.length > 1 || runs.some(isPattern);
  return `sweep ${name}: ${runs.join(', ').slice(0, 80)}${several ? ' (several runs)' : ''} on ${suites
    .map((suite) => suite.name)
    .join(', ')
    .slice(0, 80)}`;
}

const timeText = (time: Date): string =>
  Number.isNaN(time.getTime()) ? 'an invalid time' : time.toISOString();
