// `longhaul runs`: the training runs that the Temporal server or the store knows, newest first.
import type { Command } from 'commander';
import type { Client, WorkflowExecutionInfo } from '@temporalio/client';
import { timelinesNamed } from '../../activities/run/fork-run.js';
import { percent } from '../../report/format.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import { inParallel } from '../../base/in-parallel.js';
import { ownersFolder } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readSequence } from '../../store/records/records.js';
import { isUnreadable } from '../../store/record-errors.js';
import { lastCommittedStep, listRuns, readRun, readRunIfAny } from '../../store/runs/run-records.js';
import { BadInput, inFolder, storeOption, textTable, wholeNumber, withOutput } from '../output.js';
import {
  storeOfCommand,
  temporalConfig,
  type TemporalFlags,
  withClient,
  withTemporalFlags,
} from '../temporal-access.js';
import { TemporalUnreachable } from '../../workers/temporal/temporal-connection.js';

const describeDeadlineMs = 10_000;
const grpcInvalidArgument = 3;

interface RunsFlags extends TemporalFlags {
  store: string;
  json?: boolean;
  limit: number;
  query?: string;
}

interface RunLine {
  /** Id of the timeline, as `audit`, `report` and `fork` take it. It is the name if no store identifies the timeline. */
  run: string;
  /**
   * The workflow's status, or one of: `not running here` if this server does not know the run; `in the store` if no server was asked;
   * `rewound` if the name has a newer timeline; `start failed` (or `start terminated`, …) if the newest workflow of the name ended before
   * it opened the run.
   */
  status: string;
  phase: string;
  step: number | null;
  passAt1: number | null;
  /** The run and step that it was forked from; null if it began with the base model, or if no store can answer. */
  from: { run: string; step: number } | null;
  started: string;
}

export function register(program: Command): void {
  withTemporalFlags(program.command('runs').description('list the training runs, newest first'), 'reads')
    .addOption(storeOption())
    .option('--limit <n>', 'how many', wholeNumber(1), 50)
    .option('--query <query>', 'only runs that match a visibility query of Temporal, e.g. Phase = "blocked"')
    .option('--json', 'print one JSON array')
    .action(
      withOutput(async (flags: RunsFlags, command: Command) => {
        const store = await storeOfCommand(command, flags);
        const driven = await drivenLines(flags, store);
        // With a query, runs that only the store knows are left out: Temporal cannot say whether they match.
        const others = store && flags.query === undefined ? await storedLines(store, driven) : [];
        const lines = [...(driven ?? []), ...others]
          .sort((a, b) => (a.started < b.started ? 1 : -1))
          .slice(0, flags.limit);
        console.log(flags.json ? JSON.stringify(lines) : table(lines, flags));
      }),
    );
}

/** Null if no server can be asked: the command says so and continues with the store's contents. */
async function drivenLines(flags: RunsFlags, store: ObjectStore | null): Promise<RunLine[] | null> {
  const fromStore = store !== null && flags.query === undefined;
  // A stranger's server may listen at the default address: its runs would be mistaken for the store's.
  if (fromStore && temporalConfig(flags).source === null) {
    process.stderr.write(
      'no stack runs here and no Temporal server is named: the list comes from the store alone\n',
    );
    return null;
  }
  try {
    return await withClient(flags, async (client) => {
      const found = await executionsOf(client);
      const executions = flags.query === undefined ? found : await matching(client, found, flags.query);
      return store ? timelineLines(client, store, executions) : executions.map((one) => lineOf(one));
    });
  } catch (error) {
    if (!fromStore || !(error instanceof TemporalUnreachable)) throw error;
    process.stderr.write(`${error.message}. The list comes from the store alone:\n`);
    return null;
  }
}

/**
 * Newest first. A long run is a chain of executions: the result has the newest execution of each chain, with the start time of the earliest
 * known one.
 */
async function executionsOf(client: Client): Promise<WorkflowExecutionInfo[]> {
  const found: WorkflowExecutionInfo[] = [];
  for await (const execution of client.workflow.list({ query: 'WorkflowType = "trainingRun"' }))
    found.push(execution);
  return newestOfChains(found);
}

/** Throws if the server cannot parse the query. */
async function matching(
  client: Client,
  executions: readonly WorkflowExecutionInfo[],
  query: string,
): Promise<WorkflowExecutionInfo[]> {
  const runIds = new Set<string>();
  try {
    for await (const { runId } of client.workflow.list({ query })) runIds.add(runId);
  } catch (error) {
    if ((error as { cause?: { code?: number } }).cause?.code !== grpcInvalidArgument) throw error;
    const { details = '' } = (error as { cause: { details?: string } }).cause;
    throw new BadInput(`the query is not understood by the Temporal server: ${details}`, { cause: error });
  }
  return executions.filter(({ runId }) => runIds.has(runId));
}

/** The newest execution of each chain. `CONTINUED_AS_NEW` executions are merged into the execution that follows them. */
export function newestOfChains<E extends Pick<WorkflowExecutionInfo, 'workflowId' | 'startTime' | 'status'>>(
  executions: readonly E[],
): E[] {
  const begun = new Map<string, Date>();
  const newest: E[] = [];
  for (const one of [...executions].sort((a, b) => a.startTime.getTime() - b.startTime.getTime())) {
    const startTime = begun.get(one.workflowId) ?? one.startTime;
    if (one.status.name === 'CONTINUED_AS_NEW') {
      begun.set(one.workflowId, startTime);
      continue;
    }
    begun.delete(one.workflowId);
    newest.push({ ...one, startTime });
  }
  return newest.sort((a, b) => b.startTime.getTime() - a.startTime.getTime());
}

/** One line for each timeline, made from the newest execution that drove it. */
async function timelineLines(
  client: Client,
  store: ObjectStore,
  executions: readonly WorkflowExecutionInfo[],
): Promise<RunLine[]> {
  const names = [...new Set(executions.map(nameOfExecution))];
  const known = new Map(
    await inParallel(names, async (name) => [name, await timelinesOfName(store, name)] as const),
  );
  const lines = await inParallel(executions, async (execution): Promise<RunLine> => {
    const timelines = known.get(nameOfExecution(execution));
    if (!timelines) return lineOf(execution);
    const run = await timelineDrivenBy(client, execution, timelines);
    if (run === null) return failedStart(execution, timelines);
    const line = await withStoredStep(store, run, lineOf(execution));
    const rewound = run !== timelines.newest && execution.status.name !== 'RUNNING';
    const from = timelines.origins.get(run) ?? null;
    return { ...line, run, from, ...(rewound ? { status: 'rewound' } : {}) };
  });
  const newest = new Map<string, RunLine>();
  for (const line of lines) {
    const later = newest.get(line.run);
    if (!later) newest.set(line.run, line);
    // A refused start did not change the run: take only its status, or nothing if the run is already complete.
    else if (later.status.startsWith(startOf))
      newest.set(line.run, line.status === 'completed' ? line : { ...line, status: later.status });
  }
  return [...newest.values()];
}

/** The server knows the step of the last change of phase or evaluation only; `status` shows the last committed step, as the store does. */
async function withStoredStep(store: ObjectStore, run: string, line: RunLine): Promise<RunLine> {
  if (line.status !== 'running') return line;
  const stored = await lastCommittedStep(store, run).catch(() => -1);
  return stored < 0 ? line : { ...line, step: Math.max(stored, line.step ?? 0) };
}

const startOf = 'start ';

/** The line of a workflow that ended before it claimed a timeline. The workflow was started for the newest timeline. */
function failedStart(execution: WorkflowExecutionInfo, { newest, origins }: Timelines): RunLine {
  const line = lineOf(execution);
  return {
    ...line,
    run: newest,
    status: `${startOf}${line.status}`,
    phase: '',
    from: origins.get(newest) ?? null,
  };
}

interface Timelines {
  newest: string;
  /** The run id that each workflow claimed, by the workflow's first run id. */
  drivers: Map<string, string>;
  origins: Map<string, RunLine['from']>;
}

/** Null if the store has no timeline of this name, or if its timelines cannot be read. */
async function timelinesOfName(store: ObjectStore, name: string): Promise<Timelines | null> {
  try {
    const runs = await timelinesNamed(store, name);
    const newest = runs.at(-1);
    if (newest === undefined) return null;
    const owners = await inParallel(runs, (run) => readSequence(store, ownersFolder(run), 'owner'));
    const records = await inParallel(runs, (run) => readRunIfAny(store, run));
    return {
      newest,
      drivers: new Map(
        runs.flatMap((run, index) =>
          (owners[index] ?? []).map(({ firstExecutionRunId }) => [firstExecutionRunId, run] as const),
        ),
      ),
      origins: new Map(runs.map((run, index) => [run, originOf(records[index] ?? null)])),
    };
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    return null;
  }
}

/**
 * The timeline that this execution drives. An open workflow without a claim is about to drive the newest timeline. Null for a closed
 * workflow that never claimed a timeline.
 */
async function timelineDrivenBy(
  client: Client,
  { workflowId, runId, status }: WorkflowExecutionInfo,
  { newest, drivers }: Timelines,
): Promise<string | null> {
  // A list of executions does not show the first run id of a chain, so ask for it.
  const first = async (): Promise<string> => {
    const described = await client.withDeadline(Date.now() + describeDeadlineMs, () =>
      client.workflow.getHandle(workflowId, runId).describe(),
    );
    return described.raw.workflowExecutionInfo?.firstRunId ?? '';
  };
  const run = drivers.get(runId) ?? drivers.get(await first());
  return run ?? (status.name === 'RUNNING' ? newest : null);
}

/** Timelines whose workflow Temporal does not know any more. `driven`: null if Temporal was not asked. */
async function storedLines(store: ObjectStore, driven: readonly RunLine[] | null): Promise<RunLine[]> {
  const known = new Set(driven?.map(({ run }) => run));
  const unseen = driven === null ? 'in the store' : 'not running here';
  const others = { phase: '', step: null, passAt1: null, from: null };
  const lines = await inParallel(await listRuns(store), async (run): Promise<RunLine | null> => {
    try {
      const record = await readRun(store, run);
      const timelines = await timelinesNamed(store, record.name);
      const newest = timelines.length === 0 || timelines.at(-1) === run;
      if (known.has(run)) return null;
      const status = newest ? unseen : timelines.includes(run) ? 'rewound' : 'never begun';
      const last = await lastCommittedStep(store, run);
      const step = last < 0 ? null : last;
      return { ...others, run, status, step, from: originOf(record), started: record.observed.started_at };
    } catch (error) {
      // A damaged run does not hide the others; `longhaul audit` says what is wrong with it.
      if (!isUnreadable(error)) throw error;
      return { ...others, run, status: 'unreadable', started: '' };
    }
  });
  return lines.filter((line) => line !== null);
}

function originOf(record: RunRecord | null): RunLine['from'] {
  return record?.lineage ? { run: record.lineage.run, step: record.lineage.step } : null;
}

function nameOfExecution({ workflowId }: WorkflowExecutionInfo): string {
  return workflowId.replace(/^train\//, '');
}

function lineOf(execution: WorkflowExecutionInfo): RunLine {
  const { status, startTime, searchAttributes } = execution;
  const first = (name: string): unknown => (searchAttributes[name] as unknown[] | undefined)?.[0];
  const [step, passAt1] = [first('Step'), first('PassAt1')];
  return {
    run: nameOfExecution(execution),
    status: status.name.toLowerCase(),
    // Set once a run has its first node.
    phase: String(first('Phase') ?? (status.name === 'RUNNING' ? 'waiting' : '')),
    step: typeof step === 'number' ? step : null,
    passAt1: typeof passAt1 === 'number' ? passAt1 : null,
    from: null,
    started: startTime.toISOString(),
  };
}

function table(lines: RunLine[], flags: RunsFlags): string {
  if (lines.length === 0)
    return flags.query === undefined
      ? `No runs yet. Start one with: longhaul train SPEC${inFolder(flags)}`
      : 'No run matches that query';
  const rows = lines.map((line) => [
    ...[line.run, line.status, line.phase, line.step === null ? '' : String(line.step)],
    ...[line.passAt1 === null ? '' : percent(line.passAt1), line.started.slice(0, 16).replace('T', ' ')],
    line.from ? `${line.from.run}@${line.from.step}` : '',
  ]);
  const head = ['RUN', 'STATUS', 'PHASE', 'STEP', 'PASS@1', 'STARTED', 'FROM'];
  return textTable([head, ...rows]);
}
