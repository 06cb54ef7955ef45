// Says how a run's newest workflow ended if it did not complete, and gives the run's last status. A workflow that ended before it claimed
// the run does not know that status, so an earlier workflow is asked.
import { WorkflowFailedError } from '@temporalio/client';
import type { RunStatus } from '../../activities/contracts.js';
import { statusQuery } from '../../workflows/messages.js';
import type { trainingRun } from '../../workflows/run/training-run.js';
import { goOn } from '../command-refusals.js';
import { inFolder } from '../output.js';
import { whyItEnded } from './start-training.js';
import type { RunHandle, TemporalFlags } from '../temporal-access.js';

const answerWithinMs = 10_000;
/** Number of earlier workflows that are asked for the status. */
const maxEarlier = 8;

interface RunEnd {
  how: 'failed' | 'terminated' | 'cancelled' | 'timed out';
  /** Null if the run was ended without a reason. */
  cause: string | null;
  /** Time of the end by the server's clock, ISO 8601. */
  at: string;
  /** False if the workflow ended before it claimed the run, which is then unchanged. */
  claimed: boolean;
}

export interface EndedRun {
  end: RunEnd;
  /** Last status from the newest workflow that claimed the run; null if there is none, or if no worker answers. */
  status: RunStatus | null;
}

const ways: Partial<Record<string, RunEnd['how']>> = {
  FAILED: 'failed',
  TERMINATED: 'terminated',
  CANCELLED: 'cancelled',
  TIMED_OUT: 'timed out',
};

/** Null if the run's workflow is open or has completed. Throws `WorkflowNotFoundError` if it does not exist. */
export async function endedRun(handle: RunHandle): Promise<EndedRun | null> {
  const { status, runId, closeTime } = await within(handle, () => handle.describe());
  const how = ways[status.name];
  if (!how) return null;
  const [cause, own] = await Promise.all([
    causeOf(handle, runId, how),
    lastStatus(handle, runId).catch(() => null),
  ]);
  // If no worker answers for the workflow, assume that it claimed the run.
  const claimed = own === null || own.owner > 0;
  const end = { how, cause, at: closeTime?.toISOString() ?? '', claimed };
  return { end, status: claimed ? own : await earlierStatus(handle, runId) };
}

/** `failed at 2026-11-22 13:40 UTC: no such model`, without the run's name. */
export function endLine(end: RunEnd): string {
  return `${end.claimed ? '' : 'the last start '}${howAndWhy(end)}`;
}

/** An error with the line of `endLine`, the run's name and how to continue. */
export function endedError(run: string, { end, status }: EndedRun, flags: TemporalFlags): Error {
  const what = end.claimed ? run : `the start of ${run}`;
  return new Error(`${what} ${howAndWhy(end)}\n${wayOn(run, end, status !== null, flags)}`);
}

function howAndWhy({ how, cause, at }: RunEnd): string {
  const when = at ? ` at ${at.slice(0, 16).replace('T', ' ')} UTC` : '';
  const was = how === 'terminated' || how === 'cancelled' ? 'was ' : '';
  return `${was}${how}${when}${cause === null ? '' : `: ${cause}`}`;
}

/** How to continue; for a failed run, the cause says what must be fixed first. `known`: the run has records. */
export function wayOn(run: string, { how, claimed }: RunEnd, known: boolean, flags: TemporalFlags): string {
  if (claimed)
    return `${how === 'failed' ? 'fix that, then continue' : 'continue'} with: ${goOn(run, flags)}`;
  return known
    ? `that start did not change the run; continue with: ${goOn(run, flags)}`
    : `the run has not begun; start it${how === 'failed' ? ', once that is fixed,' : ''} with: longhaul train SPEC${inFolder(flags)}`;
}

/** For a command that followed the run: an error that says how the workflow ended and how to continue. Returns other errors unchanged. */
export async function whyFollowedEnded(
  handle: RunHandle,
  run: string,
  error: unknown,
  flags: TemporalFlags,
): Promise<unknown> {
  if (!(error instanceof WorkflowFailedError)) return error;
  const over = await endedRun(handle).catch(() => null);
  if (!over) return new Error(whyItEnded(error), { cause: error });
  return endedError(run, over, flags);
}

async function causeOf(handle: RunHandle, runId: string, how: RunEnd['how']): Promise<string | null> {
  try {
    await within(handle, () => executionOf(handle, runId).result());
    return null;
  } catch (error) {
    if (!(error instanceof WorkflowFailedError)) throw error;
    const why = whyItEnded(error);
    // A message in the SDK's own words means that no reason was given.
    return how === 'failed' || !why.startsWith('Workflow execution ') ? why : null;
  }
}

/** Status from the newest earlier workflow that claimed the run. */
async function earlierStatus(handle: RunHandle, newest: string): Promise<RunStatus | null> {
  const earlier: { runId: string; startTime: Date }[] = [];
  const query = `WorkflowId = ${JSON.stringify(handle.workflowId)}`;
  await within(handle, async () => {
    for await (const { runId, startTime } of handle.client.list({ query }))
      if (runId !== newest) earlier.push({ runId, startTime });
  });
  earlier.sort((a, b) => b.startTime.getTime() - a.startTime.getTime());
  for (const { runId } of earlier.slice(0, maxEarlier)) {
    const status = await lastStatus(handle, runId).catch(() => null);
    if (status && status.owner > 0) return status;
  }
  return null;
}

function lastStatus(handle: RunHandle, runId: string): Promise<RunStatus> {
  return within(handle, () => executionOf(handle, runId).query(statusQuery));
}

function executionOf({ client, workflowId }: RunHandle, runId: string): RunHandle {
  return client.getHandle<typeof trainingRun>(workflowId, runId);
}

function within<T>({ client }: RunHandle, call: () => Promise<T>): Promise<T> {
  return client.withDeadline(Date.now() + answerWithinMs, call);
}
