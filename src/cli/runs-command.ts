// `longhaul runs`: all training runs that the Temporal server knows, newest first.
import type { Command } from 'commander';
import type { WorkflowExecutionInfo } from '@temporalio/client';
import { percent } from '../report/format.js';
import { wholeNumber, withOutput } from './output.js';
import { type TemporalFlags, withClient, withTemporalFlags } from './temporal-access.js';

interface RunLine {
  run: string;
  status: string;
  phase: string;
  step: number | null;
  passAt1: number | null;
  started: string;
}

export function register(program: Command): void {
  withTemporalFlags(program.command('runs').description('list the training runs, newest first'))
    .option('--limit <n>', 'how many', wholeNumber(1), 50)
    .option('--json', 'print one JSON array')
    .action(
      withOutput(async (flags: TemporalFlags & { json?: boolean; limit: number }) => {
        const lines = await withClient(flags, async (client) => {
          const found: RunLine[] = [];
          for await (const execution of client.workflow.list({ query: 'WorkflowType = "trainingRun"' })) {
            // A long run is a chain of executions; only the newest of each chain is the run.
            if (execution.status.name !== 'CONTINUED_AS_NEW') found.push(lineOf(execution));
            if (found.length >= flags.limit) break;
          }
          return found;
        });
        console.log(flags.json ? JSON.stringify(lines) : table(lines));
      }),
    );
}

function lineOf({ workflowId, status, startTime, searchAttributes }: WorkflowExecutionInfo): RunLine {
  const first = (name: string): unknown => (searchAttributes[name] as unknown[] | undefined)?.[0];
  const [step, passAt1] = [first('Step'), first('PassAt1')];
  return {
    run: workflowId.replace(/^train\//, ''),
    status: status.name.toLowerCase(),
    phase: String(first('Phase') ?? ''),
    step: typeof step === 'number' ? step : null,
    passAt1: typeof passAt1 === 'number' ? passAt1 : null,
    started: startTime.toISOString(),
  };
}

function table(lines: RunLine[]): string {
  if (lines.length === 0) return 'No runs yet. Start one with: longhaul train SPEC';
  const rows = lines.map((line) => [
    ...[line.run, line.status, line.phase, line.step === null ? '' : String(line.step)],
    ...[line.passAt1 === null ? '' : percent(line.passAt1), line.started.slice(0, 16).replace('T', ' ')],
  ]);
  const head = ['RUN', 'STATUS', 'PHASE', 'STEP', 'PASS@1', 'STARTED'];
  const widths = head.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)),
  );
  return [head, ...rows]
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
