// `longhaul runs`: the training runs that the Temporal server knows, and those that only the store knows, newest first.
import type { Command } from 'commander';
import type { Client, WorkflowExecutionInfo } from '@temporalio/client';
import { timelinesNamed } from '../activities/fork-run.js';
import { percent } from '../report/format.js';
import type { RunRecord } from '../spec/records.js';
import { inParallel } from '../store/in-parallel.js';
import type { ObjectStore } from '../store/object-store.js';
import { NewerSchema, UnreadableRecord } from '../store/store-errors.js';
import { lastCommittedStep, listRuns, readRun, readRunIfAny } from '../store/run-records.js';
import { storeOption, wholeNumber, withOutput } from './output.js';
import { storeOfCommand } from './stack-store.js';
import { textTable } from './table.js';
import { type TemporalFlags, withClient, withTemporalFlags } from './temporal-access.js';

interface RunsFlags extends TemporalFlags {
  store: string;
  json?: boolean;
  limit: number;
}

interface RunLine {
  run: string;
  /** Of its workflow; `not running here` where this server knows none, `rewound` where its name has a newer timeline. */
  status: string;
  phase: string;
  step: number | null;
  passAt1: number | null;
  /** Where it goes on from; null where it began with the base model, and where no store can tell. */
  from: { run: string; step: number } | null;
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
        const store = await storeOfCommand(command, flags);
        const others = store ? await storedLines(store, new Set(known.map(({ run }) => run))) : [];
        const driven = store ? await inParallel(known, (line) => withOrigin(store, line)) : known;
        const lines = [...driven, ...others]
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

/** A workflow drives its name's newest timeline. */
async function withOrigin(store: ObjectStore, line: RunLine): Promise<RunLine> {
  try {
    const run = (await timelinesNamed(store, line.run)).at(-1) ?? line.run;
    return { ...line, from: originOf(await readRunIfAny(store, run)) };
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    return line;
  }
}

/** Timelines that no workflow drives which Temporal knows: of other names, and rewound ones. */
async function storedLines(store: ObjectStore, known: ReadonlySet<string>): Promise<RunLine[]> {
  const others = { phase: '', step: null, passAt1: null, from: null };
  const lines = await inParallel(await listRuns(store), async (run): Promise<RunLine | null> => {
    try {
      const record = await readRun(store, run);
      const timelines = await timelinesNamed(store, record.name);
      const newest = timelines.length === 0 || timelines.at(-1) === run;
      if (newest && known.has(record.name)) return null;
      const status = newest ? 'not running here' : timelines.includes(run) ? 'rewound' : 'never begun';
      const step = await lastCommittedStep(store, run);
      return { ...others, run, status, step, from: originOf(record), started: record.observed.started_at };
    } catch (error) {
      // One damaged run hides no other; `longhaul audit` says what is wrong with it.
      if (!isUnreadable(error)) throw error;
      return { ...others, run, status: 'unreadable', started: '' };
    }
  });
  return lines.filter((line) => line !== null);
}

function isUnreadable(error: unknown): boolean {
  return error instanceof UnreadableRecord || error instanceof NewerSchema;
}

function originOf(record: RunRecord | null): RunLine['from'] {
  return record?.lineage ? { run: record.lineage.run, step: record.lineage.step } : null;
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
    from: null,
    started: startTime.toISOString(),
  };
}

function table(lines: RunLine[]): string {
  if (lines.length === 0) return 'No runs yet. Start one with: longhaul train SPEC';
  const rows = lines.map((line) => [
    ...[line.run, line.status, line.phase, line.step === null ? '' : String(line.step)],
    ...[line.passAt1 === null ? '' : percent(line.passAt1), line.started.slice(0, 16).replace('T', ' ')],
    line.from ? `${line.from.run}@${line.from.step}` : '',
  ]);
  const head = ['RUN', 'STATUS', 'PHASE', 'STEP', 'PASS@1', 'STARTED', 'FROM'];
  return textTable([head, ...rows]);
}
