// Creates, lists and changes the schedules of sweeps for the command line.
import {
  type Client,
  type ScheduleDescription,
  ScheduleNotFoundError,
  type ScheduleSummary,
} from '@temporalio/client';
import type { SweepSpec } from '../../spec/sweep-spec.js';
import { checkName } from '../../store/record-keys.js';
import {
  scheduleChange,
  scheduleIdOf,
  sweepOfScheduleId,
  type SweepTarget,
} from '../../sweeps/schedule-options.js';
import { orchestratorQueue } from '../../workflows/messages.js';
import { printable, textTable, withOutput } from '../output.js';
import { type TemporalFlags, withClient } from '../temporal-access.js';

export const target: SweepTarget = { workflowType: 'evalSweep', taskQueue: orchestratorQueue };
export const defaultProject = 'longhaul';
const callDeadlineMs = 10_000;
const firingsShown = 3;

export interface JsonFlag {
  json?: boolean | undefined;
}

export interface NamedFlags extends TemporalFlags, JsonFlag {
  project: string;
}

export function say({ json }: JsonFlag, value: object, text: string): void {
  console.log(json ? JSON.stringify(value) : text);
}

/** The result of applying a sweep file. */
interface AppliedSchedule {
  sweep: string;
  project: string;
  /** `none`: the file has no schedule, and no schedule existed. */
  schedule: 'created' | 'updated' | 'unchanged' | 'deleted' | 'none';
  paused: boolean;
  /** Times of the next firings, ISO 8601; empty while the schedule is paused. */
  next: string[];
}

export async function apply(client: Client, spec: SweepSpec): Promise<AppliedSchedule> {
  const id = scheduleIdOf(spec);
  const handle = client.schedule.getHandle(id);
  const change = scheduleChange(spec, await describeIfAny(client, id), target);
  const without = { sweep: spec.name, project: spec.project, paused: false, next: [] };
  switch (change.kind) {
    case 'create':
      await client.schedule.create(change.options);
      break;
    case 'update':
      await handle.update(change.update);
      break;
    case 'delete':
      await handle.delete();
      return { ...without, schedule: 'deleted' };
    case 'unchanged':
      if (!spec.schedule) return { ...without, schedule: 'none' };
  }
  const { state, info } = await handle.describe();
  const schedule = ({ create: 'created', update: 'updated', unchanged: 'unchanged' } as const)[change.kind];
  const next = info.nextActionTimes.slice(0, firingsShown).map((time) => time.toISOString());
  return { ...without, schedule, paused: state.paused, next: state.paused ? [] : next };
}

/** `file`: the sweep's file, for the command that starts the sweep by hand. */
export function appliedText(applied: AppliedSchedule, file = 'FILE'): string {
  const { sweep, schedule, paused, next } = applied;
  if (schedule === 'deleted') return `${sweep} has no schedule any more`;
  if (schedule === 'none')
    return `${sweep} has no schedule, in the file or on the server; start it with: longhaul sweeps run ${file}`;
  const then = paused
    ? [`paused; continue with: longhaul sweeps resume ${sweep}${inProject(applied)}`]
    : next.map((time) => `fires ${time}`);
  return [`${sweep}: schedule ${schedule}`, ...then].join('\n  ');
}

/** The `--project` option to append to a suggested command, so that the command can be typed as printed. */
export function inProject({ project }: { project: string }): string {
  return project === defaultProject ? '' : ` --project ${project}`;
}

async function describeIfAny(client: Client, id: string): Promise<ScheduleDescription | null> {
  try {
    return await client.withDeadline(Date.now() + callDeadlineMs, () =>
      client.schedule.getHandle(id).describe(),
    );
  } catch (error) {
    if (error instanceof ScheduleNotFoundError) return null;
    throw error;
  }
}

interface ScheduleLine {
  sweep: string;
  project: string;
  state: 'active' | 'paused';
  /** Time of the last firing, ISO 8601; null if it has not fired. */
  last: string | null;
  next: string | null;
  /** The schedule's note: why it is paused, and what a person did by hand. */
  note: string;
}

export async function list(client: Client): Promise<ScheduleLine[]> {
  const lines: ScheduleLine[] = [];
  for await (const summary of client.schedule.list()) {
    const sweep = sweepOfScheduleId(summary.scheduleId);
    if (sweep) lines.push(lineOf(sweep, summary));
  }
  return lines.sort((a, b) => a.project.localeCompare(b.project) || a.sweep.localeCompare(b.sweep));
}

function lineOf(
  { name, project }: { name: string; project: string },
  summary: ScheduleSummary,
): ScheduleLine {
  const { state, info } = summary;
  return {
    ...{ sweep: name, project, state: state.paused ? 'paused' : 'active', note: state.note ?? '' },
    last: info.recentActions.at(-1)?.takenAt.toISOString() ?? null,
    next: state.paused ? null : (info.nextActionTimes[0]?.toISOString() ?? null),
  };
}

export function tableOf(lines: readonly ScheduleLine[]): string {
  if (lines.length === 0) return 'No sweep is scheduled. Schedule one with: longhaul sweeps apply FILE';
  const minute = (time: string | null): string => (time === null ? '' : time.slice(0, 16).replace('T', ' '));
  const rows = lines.map(({ sweep, project, state, last, next, note }) => [
    ...[sweep, project, state, minute(last), minute(next), note],
  ]);
  return printableTable([['SWEEP', 'PROJECT', 'STATE', 'LAST (UTC)', 'NEXT (UTC)', 'NOTE'], ...rows]);
}

function printableTable(rows: string[][]): string {
  return textTable(rows).split('\n').map(printable).join('\n');
}

/** Makes a command that runs `act` on the schedule with the given name and prints the text that `act` returns. */
export function onSchedule<Flags extends object>(
  act: (
    handle: ReturnType<Client['schedule']['getHandle']>,
    name: string,
    flags: NamedFlags & Flags,
  ) => Promise<string>,
) {
  return withOutput(async (given: string, flags: NamedFlags & Flags) => {
    const name = checkName(given, 'sweep');
    const text = await withClient(flags, async (client) => {
      try {
        const handle = client.schedule.getHandle(scheduleIdOf({ project: flags.project, name }));
        return await act(handle, name, flags);
      } catch (error) {
        if (!(error instanceof ScheduleNotFoundError)) throw error;
        const known = (await list(client)).map(({ sweep, project }) => `${sweep} (project ${project})`);
        throw new Error(
          `project ${flags.project} has no scheduled sweep "${name}"; ` +
            (known.length === 0 ? 'none is scheduled' : `scheduled are ${known.join(', ')}`),
          { cause: error },
        );
      }
    });
    say(flags, { sweep: name, project: flags.project, said: text }, text);
  });
}
