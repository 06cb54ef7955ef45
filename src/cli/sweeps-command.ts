// `longhaul sweeps`: sweeps as Temporal Schedules, and by hand. Applying a file makes the schedule what the file says.
import { setTimeout as delay } from 'node:timers/promises';
import {
  type Client,
  type ScheduleDescription,
  ScheduleNotFoundError,
  type ScheduleSummary,
  WorkflowExecutionAlreadyStartedError,
  WorkflowFailedError,
  type WorkflowHandle,
  WorkflowNotFoundError,
} from '@temporalio/client';
import { CancelledFailure } from '@temporalio/common';
import { type Command, InvalidArgumentError } from 'commander';
import { withOutput } from './output.js';
import { printable } from './printable.js';
import { addReport } from './sweeps-report.js';
import { textTable } from './table.js';
import { whyItEnded } from './start-training.js';
import { type TemporalFlags, withClient, withTemporalFlags } from './temporal-access.js';
import { checkName } from '../store/layout.js';
import { orchestratorQueue } from '../workflows/messages.js';
import type { evalSweep } from '../workflows/eval-sweep.js';
import {
  backfillOf,
  scheduleChange,
  scheduleIdOf,
  sweepOfScheduleId,
  type SweepTarget,
} from '../sweeps/schedule-options.js';
import { type SweepResult, type SweepStatus, sweepStatusQuery } from '../workflows/sweep-messages.js';
import { refuseOtherSweep } from '../sweeps/same-sweep.js';
import { inputOfWorkflow } from './workflow-input.js';
import { parseSweepSpec, readSweepFile } from '../sweeps/sweep-input.js';
import type { SweepSpec } from '../spec/sweep-spec.js';

const target: SweepTarget = { workflowType: 'evalSweep', taskQueue: orchestratorQueue };
const defaultProject = 'longhaul';
const callDeadlineMs = 10_000;
const firingsShown = 3;
const tellEveryMs = 2_000;

interface NamedFlags extends TemporalFlags {
  project: string;
}

export function register(program: Command): void {
  const sweeps = program
    .command('sweeps')
    .description('evaluate checkpoints on suites of tasks, by a schedule or now, and compare them');

  withTemporalFlags(
    sweeps.command('apply <file>').description('create, update or remove the schedule of a sweep file'),
  ).action(
    withOutput(async (file: string, flags: TemporalFlags) => {
      const spec = await readSweepFile(file);
      console.log(await withClient(flags, (client) => apply(client, spec, file)));
    }),
  );

  withTemporalFlags(sweeps.command('list').description('list the scheduled sweeps'))
    .option('--json', 'print one JSON array')
    .action(
      withOutput(async (flags: TemporalFlags & { json?: boolean }) => {
        const lines = await withClient(flags, list);
        console.log(flags.json ? JSON.stringify(lines) : tableOf(lines));
      }),
    );

  withTemporalFlags(
    sweeps.command('run <file>').description('start the sweep of a file now, beside its schedule'),
  )
    .option('--id <name>', 'its name; the same one again goes on with what is missing', nameArgument)
    .option('--detach', 'do not wait for its end')
    .action(
      withOutput(async (file: string, flags: TemporalFlags & { id?: string; detach?: boolean }) => {
        const spec = await readSweepFile(file);
        await withClient(flags, (client) => runNow(client, spec, flags));
      }),
    );

  addReport(
    sweeps
      .command('report <name>')
      .description('write the comparison of a sweep as an HTML file: of a start, or of the newest firing')
      .option('--project <name>', 'project of the sweep', nameArgument, defaultProject),
  );

  const named = (verb: string, description: string): Command =>
    withTemporalFlags(sweeps.command(`${verb} <name>`).description(description)).option(
      '--project <name>',
      'project of the sweep',
      nameArgument,
      defaultProject,
    );
  named(
    'cancel',
    'end a sweep that goes on, by the name of its start; the same name again goes on with what is missing',
  ).action(
    withOutput(async (name: string, flags: NamedFlags) => {
      await withClient(flags, (client) => cancel(client, `eval/${flags.project}/${name}`));
      console.log(`${name} is cancelled; what it has evaluated stays`);
    }),
  );
  named('trigger', 'fire a schedule now').action(
    onSchedule(async (handle, name) => {
      await handle.trigger();
      return `fired ${name}`;
    }),
  );
  named('pause', 'let a schedule fire no more until it is resumed').action(
    onSchedule<object>(async (handle, name, flags) => {
      await handle.pause('longhaul sweeps pause');
      return `paused ${name}; go on with: longhaul sweeps resume ${name}${inProject(flags)}`;
    }),
  );
  named('resume', 'let a paused schedule fire again').action(
    onSchedule(async (handle, name) => {
      await handle.unpause('longhaul sweeps resume');
      return `resumed ${name}`;
    }),
  );
  named('backfill', 'fire for a time that has passed, one firing after the other')
    .requiredOption('--from <time>', 'first time, as 2026-11-20T00:00Z', timeArgument)
    .requiredOption('--to <time>', 'last time', timeArgument)
    .action(
      onSchedule<{ from: Date; to: Date }>(async (handle, name, { from, to }) => {
        await handle.backfill(backfillOf(from, to));
        return `${name} is fired for ${from.toISOString()} to ${to.toISOString()}`;
      }),
    );
  named('delete', 'remove a schedule; what it has evaluated stays').action(
    onSchedule(async (handle, name) => {
      await handle.delete();
      return `deleted the schedule of ${name}`;
    }),
  );
}

async function cancel(client: Client, workflowId: string): Promise<void> {
  try {
    await client.workflow.getHandle(workflowId).cancel();
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error;
    const open: string[] = [];
    for await (const one of client.workflow.list({
      query: 'WorkflowType = "evalSweep" AND ExecutionStatus = "Running"',
    }))
      open.push(one.workflowId);
    const mend = open.length === 0 ? 'none goes on' : `there are ${open.sort().join(', ')}`;
    throw new Error(`no sweep goes on as ${workflowId}: ${mend}`, { cause: error });
  }
}

/** `file`: where the sweep stands, for the command that starts it by hand. */
export async function apply(client: Client, spec: SweepSpec, file = 'FILE'): Promise<string> {
  const id = scheduleIdOf(spec);
  const handle = client.schedule.getHandle(id);
  const change = scheduleChange(spec, await describeIfAny(client, id), target);
  switch (change.kind) {
    case 'create':
      await client.schedule.create(change.options);
      break;
    case 'update':
      await handle.update(change.update);
      break;
    case 'delete':
      await handle.delete();
      return `${spec.name} has no schedule any more`;
    case 'unchanged':
      if (!spec.schedule)
        return `${spec.name} says no schedule, and has none; start it with: longhaul sweeps run ${file}`;
  }
  const { state, info } = await handle.describe();
  const said = { create: 'created', update: 'updated', unchanged: 'unchanged' }[change.kind];
  const next = info.nextActionTimes.slice(0, firingsShown).map((time) => `fires ${time.toISOString()}`);
  const then = state.paused
    ? [`paused; go on with: longhaul sweeps resume ${spec.name}${inProject(spec)}`]
    : next;
  return [`${spec.name}: schedule ${said}`, ...then].join('\n  ');
}

/** For a command in a hint: with it the hint can be typed as it is. */
function inProject({ project }: { project: string }): string {
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

export interface ScheduleLine {
  sweep: string;
  project: string;
  state: 'active' | 'paused';
  /** ISO 8601; null: none. */
  last: string | null;
  next: string | null;
  /** Why it is paused, and what was done by hand. */
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

function tableOf(lines: readonly ScheduleLine[]): string {
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

export async function runNow(
  client: Client,
  spec: SweepSpec,
  { id, detach }: { id?: string; detach?: boolean },
): Promise<void> {
  // As a schedule's firings are named, so that two of them never meet.
  const name = id ?? `${spec.name}-${new Date().toISOString().replace(/\.\d+Z$/, 'Z')}`;
  const workflowId = `eval/${spec.project}/${name}`;
  const handle = await client.workflow
    .start<typeof evalSweep>(target.workflowType, {
      taskQueue: target.taskQueue,
      workflowId,
      args: [spec],
    })
    .catch(async (error: unknown) => {
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
      const running = await inputOfWorkflow(client, workflowId);
      if (running !== null) refuseOtherSweep(`${spec.project}/${name}`, parseSweepSpec(running), spec);
      process.stderr.write(`${name} goes on already: following it\n`);
      return client.workflow.getHandle<typeof evalSweep>(workflowId);
    });
  if (detach) {
    console.log(`started ${name} (workflow ${workflowId})`);
    return;
  }
  const result = await followed(handle, name);
  console.log(result.table.trimEnd());
  console.log(`\n${printable(resultText(result))}`);
}

/** Tells on standard error how far it is. Throws why it has failed. */
async function followed(handle: SweepHandle, name: string): Promise<SweepResult> {
  let over = false;
  const said = tellOf(handle, () => over);
  try {
    return await handle.result();
  } catch (error) {
    if (!(error instanceof WorkflowFailedError)) throw error;
    if (error.cause instanceof CancelledFailure)
      throw new Error(`${name} was cancelled; what it has evaluated stays`, { cause: error });
    throw new Error(whyItEnded(error), { cause: error });
  } finally {
    over = true;
    await said;
  }
}

async function tellOf(handle: SweepHandle, over: () => boolean): Promise<void> {
  let last = '';
  while (!over()) {
    const status = await handle.query(sweepStatusQuery).catch(() => null);
    const text = status ? printable(statusText(status)) : last;
    if (text !== last && !over()) process.stderr.write(`${text}\n`);
    last = text;
    for (let waited = 0; waited < tellEveryMs && !over(); waited += 100) await delay(100);
  }
}

type SweepHandle = WorkflowHandle<typeof evalSweep>;

export function resultText({
  sweep,
  ended,
  pairs,
  episodes,
  failed,
  report,
  alarms,
  gaps,
}: SweepResult): string {
  const lines = [`${sweep}: ${ended}, ${pairs} evaluations, ${episodes} episodes played`];
  for (const alarm of alarms) lines.push(`regression: ${alarm}`);
  for (const gap of gaps) lines.push(`not compared: ${gap}`);
  for (const { run, step, suite, reason } of failed)
    lines.push(`not evaluated: ${run} step ${step} on ${suite}: ${reason}`);
  return [...lines, `comparison: ${report}`, `as a page: ${pageCommand(sweep)}`].join('\n');
}

/** `sweep`: `{project}/{name}`. */
function pageCommand(sweep: string): string {
  const [project = '', name = ''] = sweep.split('/');
  return `longhaul sweeps report ${name}${inProject({ project })}`;
}

export function statusText({ sweep, phase, pairs, done, waitsFor }: SweepStatus): string {
  const waits = waitsFor === null ? '' : `; waits: ${waitsFor}`;
  return `${sweep}: ${phase}, ${done} of ${pairs} evaluations${waits}`;
}

function onSchedule<Flags extends object>(
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
    console.log(text);
  });
}

function nameArgument(value: string): string {
  try {
    return checkName(value, 'name');
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}

function timeArgument(value: string): Date {
  const time = new Date(value);
  if (Number.isNaN(time.getTime())) throw new InvalidArgumentError('write a time as 2026-11-20T00:00Z');
  return time;
}
