// `longhaul runs`: the training runs that the Temporal server knows, and those that only the store knows, newest first.
import { existsSync } from 'node:fs';
import type { Command } from 'commander';
import type { Client, WorkflowExecutionInfo } from '@temporalio/client';
import { percent } from '../report/format.js';
import { inParallel } from '../store/in-parallel.js';
import type { ObjectStore } from '../store/object-store.js';
import { NewerSchema, UnreadableRecord } from '../store/store-errors.js';
import { lastCommittedStep, listRuns, readRun } from '../store/run-records.js';
import { defaultStore, openExistingStore, storeOption, wholeNumber, withOutput } from './output.js';
import { type TemporalFlags, temporalConfig, withClient, withTemporalFlags } from './temporal-access.js';

interface RunsFlags extends TemporalFlags {
  store: string;
  json?: boolean;
  limit: number;
}

interface RunLine {
  run: string;
  /** Of its workflow; `not running here` where this server knows none. */
  status: string;
  phase: string;
  step: number | null;
  passAt1: number | null;
  started: string;
}

export function register(program: Command): void {
  withTemporalFlags(program.command('runs').description('list the training runs, newest first'))
    .addOption(storeOption())
    .option('--limit <n>', 'how many', wholeNumber(1), 50)
    .option('--json', 'print one JSON array')
    .action(
      withOutput(async (flags: RunsFlags, command: Command) => {
        const known = await withClient(flags, workflowLines);
        const store = await storeOf(flags, command.getOptionValueSource('store') === 'default');
        const others = store ? await storedLines(store, new Set(known.map(({ run }) => run))) : [];
        const lines = [...known, ...others]
          .sort((a, b) => (a.started < b.started ? 1 : -1))
          .slice(0, flags.limit);
        console.log(flags.json ? JSON.stringify(lines) : table(lines));
      }),
    );
}

async function workflowLines(client: Client): Promise<RunLine[]> {
  const lines: RunLine[] = [];
  for await (const execution of client.workflow.list({ query: 'WorkflowType = "trainingRun"' })) {
    // A long run is a chain of executions; only the newest of each chain is the run.
    if (execution.status.name !== 'CONTINUED_AS_NEW') lines.push(lineOf(execution));
  }
  return lines;
}

/** The named store, the running stack's, or the one in this folder; null where nothing was named and none is there. */
async function storeOf(flags: RunsFlags, isDefault: boolean): Promise<ObjectStore | null> {
  if (!isDefault) return openExistingStore(flags.store);
  const { stack } = temporalConfig(flags);
  if (stack) return openExistingStore(stack.store);
  return existsSync(defaultStore) ? openExistingStore(flags.store) : null;
}

/** Runs whose name is not among those that Temporal knows. */
async function storedLines(store: ObjectStore, known: ReadonlySet<string>): Promise<RunLine[]> {
  const others = { phase: '', step: null, passAt1: null };
  const lines = await inParallel(await listRuns(store), async (run): Promise<RunLine | null> => {
    try {
      const { name, observed } = await readRun(store, run);
      if (known.has(name)) return null;
      const step = await lastCommittedStep(store, run);
      return { ...others, run, status: 'not running here', step, started: observed.started_at };
    } catch (error) {
      // One damaged run hides no other; `longhaul audit` says what is wrong with it.
      if (!(error instanceof UnreadableRecord || error instanceof NewerSchema)) throw error;
      return { ...others, run, status: 'unreadable', started: '' };
    }
  });
  return lines.filter((line) => line !== null);
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
