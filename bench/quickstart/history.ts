// Figures of a run's Temporal history: events per step, and the largest payload.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Client } from '@temporalio/client';
import type { History } from '@temporalio/common/lib/proto-utils.js';
import { readTemporalConfig } from '../../src/workers/process/config.js';
import { freePort } from '../../src/stack/free-port.js';
import { findTemporalBinary } from '../../src/stack/temporal-binary.js';
import { connectClient } from '../../src/workers/temporal/temporal-connection.js';
import { temporalServerArguments } from '../../src/workers/temporal/temporal-server.js';

export interface HistoryFigures {
  executions: number;
  events: number;
  steps: number;
  /** All events divided by all steps. Start, evaluations, checkpoints and report are included. */
  events_per_step: number;
  /** Most events from the planning of a step to the planning of the next step, or to the end of an execution that continues as new. */
  events_per_step_max: number;
  payload_bytes_max: number;
}

export type HistoryEvent = NonNullable<History['events']>[number];

/** Histories of a run's executions, oldest first. Continue-as-new begins a new execution. */
export async function fetchRunHistory(
  client: Client,
  workflowId: string,
  firstExecutionRunId: string,
): Promise<HistoryEvent[][]> {
  const executions: HistoryEvent[][] = [];
  for await (const events of executionsOf(client, workflowId, firstExecutionRunId)) executions.push(events);
  return executions;
}

/** The histories of a run's executions one by one: together, the histories of a long run do not fit into memory. */
export async function* executionsOf(
  client: Client,
  workflowId: string,
  firstExecutionRunId: string,
): AsyncGenerator<HistoryEvent[]> {
  let runId: string | null | undefined = firstExecutionRunId;
  while (runId) {
    const { events } = await client.workflow.getHandle(workflowId, runId).fetchHistory();
    yield events ?? [];
    runId = events?.at(-1)?.workflowExecutionContinuedAsNewEventAttributes?.newExecutionRunId;
  }
}

export function historyFigures(executions: readonly HistoryEvent[][]): HistoryFigures {
  const events = executions.flat();
  const planned = executions.map(plannedAt);
  const steps = planned.flat().length;
  if (steps === 0) throw new Error('the history plans no step: there is nothing to measure');
  // Before its first step every execution opens the run and finds its node. These events are not counted as a step's.
  const between = planned.flatMap((indices, execution) =>
    indices.map((index, at) => {
      const last = executions[execution]?.length ?? 0;
      const next = indices[at + 1] ?? (execution < executions.length - 1 ? last : null);
      return next === null ? 0 : next - index;
    }),
  );
  return {
    executions: executions.length,
    events: events.length,
    steps,
    events_per_step: events.length / steps,
    events_per_step_max: Math.max(...between),
    payload_bytes_max: Math.max(...events.map(largestPayload)),
  };
}

function plannedAt(events: readonly HistoryEvent[]): number[] {
  return events.flatMap((event, index) =>
    event.activityTaskScheduledEventAttributes?.activityId?.endsWith('/plan') ? [index] : [],
  );
}

/** Size in bytes of the largest payload anywhere in an event: inputs, results, details, headers, memos, summaries. */
function largestPayload(value: unknown): number {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return 0;
  const { data } = value as { data?: unknown };
  const own = data instanceof Uint8Array ? data.byteLength : 0;
  return Math.max(own, ...Object.values(value).map(largestPayload));
}

/** Starts a Temporal server on the database of a stopped stack, and reads a run's history from it. */
export async function historyOfStoppedStack(
  folder: string,
  workflowId: string,
  firstExecutionRunId: string,
): Promise<HistoryFigures> {
  const port = await freePort();
  const args = temporalServerArguments({ port, uiPort: null, databaseFile: join(folder, 'temporal.db') });
  const server = spawn(findTemporalBinary(), args, { stdio: 'ignore' });
  try {
    const { client, close } = await connectClient(
      readTemporalConfig({ address: `127.0.0.1:${port}` }),
      60_000,
    );
    try {
      return historyFigures(await fetchRunHistory(client, workflowId, firstExecutionRunId));
    } finally {
      await close();
    }
  } finally {
    server.kill('SIGTERM');
    await new Promise((resolve) => (server.exitCode === null ? server.once('exit', resolve) : resolve(null)));
  }
}

/** Run id of the execution that first drove a run, from its owner record. */
export function firstExecution(folder: string, run: string): string {
  const path = join(folder, 'store', 'runs', run, 'owners', '1.json');
  return (JSON.parse(readFileSync(path, 'utf8')) as { firstExecutionRunId: string }).firstExecutionRunId;
}
