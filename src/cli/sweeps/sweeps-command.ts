// `longhaul sweeps`: runs sweeps by Temporal Schedules or by hand. Applying a file makes the schedule match the file.
import { type Client, WorkflowExecutionAlreadyStartedError, WorkflowNotFoundError } from '@temporalio/client';
import { type Command, InvalidArgumentError } from 'commander';
import { followed } from '../followed-workflow.js';
import { printable, withOutput } from '../output.js';
import {
  appliedText,
  apply,
  defaultProject,
  inProject,
  type JsonFlag,
  list,
  type NamedFlags,
  onSchedule,
  say,
  tableOf,
  target,
} from './sweep-schedules.js';
import { addReport } from './sweeps-report.js';
import { type TemporalFlags, withClient, withTemporalFlags } from '../temporal-access.js';
import { checkName } from '../../store/record-keys.js';
import type { evalSweep } from '../../workflows/sweep/eval-sweep.js';
import { backfillOf } from '../../sweeps/schedule-options.js';
import {
  type SweepResult,
  type SweepStatus,
  sweepStatusQuery,
} from '../../workflows/sweep/sweep-messages.js';
import { parseSweepSpec, readSweepFile, refuseOtherSweep } from '../../sweeps/sweep-input.js';
import { inputOfWorkflow } from '../train/workflow-input.js';
import type { SweepSpec } from '../../spec/sweep-spec.js';

const asJson = 'print the result as one JSON object';

export function register(program: Command): void {
  const sweeps = program
    .command('sweeps')
    .description('evaluate checkpoints on suites of tasks, by a schedule or now, and compare them');

  withTemporalFlags(
    sweeps.command('apply <file>').description('create, update or remove the schedule of a sweep file'),
    'writes',
  )
    .option('--json', asJson)
    .action(
      withOutput(async (file: string, flags: TemporalFlags & JsonFlag) => {
        const spec = await readSweepFile(file);
        const applied = await withClient(flags, (client) => apply(client, spec));
        say(flags, applied, appliedText(applied, file));
      }),
    );

  withTemporalFlags(sweeps.command('list').description('list the scheduled sweeps'), 'reads')
    .option('--json', 'print one JSON array')
    .action(
      withOutput(async (flags: TemporalFlags & JsonFlag) => {
        const lines = await withClient(flags, list);
        say(flags, lines, tableOf(lines));
      }),
    );

  withTemporalFlags(
    sweeps.command('run <file>').description('start the sweep of a file now, independent of its schedule'),
    'writes',
  )
    .option('--id <name>', 'name of this start; the same name again plays only what is missing', nameArgument)
    .option('--again', 'play everything again, even what already has a result')
    .option('--detach', 'do not wait until it ends')
    .option('--json', 'print its result as one JSON object')
    .action(
      withOutput(async (file: string, flags: TemporalFlags & RunFlags) => {
        const spec = await readSweepFile(file);
        const asked: SweepSpec = flags.again ? { ...spec, again: true } : spec;
        await withClient(flags, (client) => runNow(client, asked, flags));
      }),
    );

  addReport(
    sweeps
      .command('report <name>')
      .description('write the comparison of a sweep (of one start, or of the newest firing) as an HTML file')
      .option('--project <name>', 'project of the sweep', nameArgument, defaultProject),
  );

  const named = (verb: string, description: string): Command =>
    withTemporalFlags(sweeps.command(`${verb} <name>`).description(description), 'writes')
      .option('--project <name>', 'project of the sweep', nameArgument, defaultProject)
      .option('--json', asJson);
  named(
    'cancel',
    'end a running sweep by the name of its start; starting that name again plays only what is missing',
  ).action(
    withOutput(async (name: string, flags: NamedFlags) => {
      await withClient(flags, (client) => cancel(client, `eval/${flags.project}/${name}`));
      const { project } = flags;
      say(
        flags,
        { sweep: name, project, ended: 'cancelled' },
        `${name} is cancelled; its finished evaluations are kept`,
      );
    }),
  );
  named('trigger', 'fire a schedule now').action(
    onSchedule(async (handle, name) => {
      await handle.trigger();
      return `fired ${name}`;
    }),
  );
  named('pause', 'stop a schedule from firing until it is resumed').action(
    onSchedule<object>(async (handle, name, flags) => {
      await handle.pause('longhaul sweeps pause');
      return `paused ${name}; continue with: longhaul sweeps resume ${name}${inProject(flags)}`;
    }),
  );
  named('resume', 'let a paused schedule fire again').action(
    onSchedule(async (handle, name) => {
      await handle.unpause('longhaul sweeps resume');
      return `resumed ${name}`;
    }),
  );
  named('backfill', 'catch up on the firings of a past period, one after the other')
    .requiredOption('--from <time>', 'start of the period, as 2026-11-20T00:00Z', timeArgument)
    .requiredOption('--to <time>', 'end of the period', timeArgument)
    .action(
      onSchedule<{ from: Date; to: Date }>(async (handle, name, { from, to }) => {
        await handle.backfill(backfillOf(from, to));
        return `${name} is fired for ${from.toISOString()} to ${to.toISOString()}`;
      }),
    );
  named('delete', 'remove a schedule; its finished evaluations are kept').action(
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
    const fix = open.length === 0 ? 'no sweep is running' : `running sweeps: ${open.sort().join(', ')}`;
    throw new Error(`no sweep is running as ${workflowId}: ${fix}`, { cause: error });
  }
}

interface RunFlags {
  id?: string;
  again?: boolean;
  detach?: boolean;
  json?: boolean | undefined;
}

export async function runNow(client: Client, spec: SweepSpec, { id, detach, json }: RunFlags): Promise<void> {
  // Named by its time, like a schedule's firings, so that two starts never get the same name.
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
      process.stderr.write(`${name} is running already: following it\n`);
      return client.workflow.getHandle<typeof evalSweep>(workflowId);
    });
  if (detach) {
    say(
      { json },
      { sweep: `${spec.project}/${name}`, workflowId },
      `started ${name} (workflow ${workflowId})`,
    );
    return;
  }
  const result = await followed(handle, {
    status: sweepStatusQuery,
    text: statusText,
    cancelled: `${name} was cancelled; its finished evaluations are kept`,
  });
  say({ json }, result, `${result.table.trimEnd()}\n\n${printable(resultText(result))}`);
}

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

/** The command that writes the comparison page. `sweep`: `{project}/{name}`. */
function pageCommand(sweep: string): string {
  const [project = '', name = ''] = sweep.split('/');
  return `longhaul sweeps report ${name}${inProject({ project })}`;
}

export function statusText({ sweep, phase, pairs, done, waitsFor }: SweepStatus): string {
  const waits = waitsFor === null ? '' : `; waits: ${waitsFor}`;
  return `${sweep}: ${phase}, ${done} of ${pairs} evaluations${waits}`;
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
