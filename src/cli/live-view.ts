// A run as it goes, in a terminal: one line that changes, or one line a step where the output is no terminal.
import { setTimeout as delay } from 'node:timers/promises';
import { type Client, WorkflowNotFoundError } from '@temporalio/client';
import type { RunStatus } from '../activities/contracts.js';
import { percent, timeSpan } from '../report/format.js';
import { statusQuery } from '../workflows/messages.js';
import type { TrainingResult } from '../workflows/training-run.js';
import type { RunHandle } from './temporal-access.js';
import { waitingFor, waitingLine } from './waiting.js';

const pollMs = 500;
const queryDeadlineMs = 3_000;
const resultDeadlineMs = 15_000;
const openStatuses = ['RUNNING', 'PAUSED', 'CONTINUED_AS_NEW'];

export interface FollowOptions {
  /** Absent: nothing is shown. */
  output?: NodeJS.WriteStream;
  signal?: AbortSignal;
}

/** Shows the run until its workflow ends; answers its result, or throws what ended it. */
export async function followRun(
  client: Client,
  handle: RunHandle,
  { output, signal }: FollowOptions,
): Promise<TrainingResult> {
  const stop = new AbortController();
  const shown = showUntil(
    client,
    handle,
    output,
    signal ? AbortSignal.any([signal, stop.signal]) : stop.signal,
  );
  try {
    return await resultWhenClosed(client, handle, signal);
  } finally {
    stop.abort();
    await shown;
  }
}

/** Null while no worker answers: the orchestrator or Temporal may be restarting. */
export async function queryStatus(client: Client, handle: RunHandle): Promise<RunStatus | null> {
  try {
    return await client.withDeadline(Date.now() + queryDeadlineMs, () => handle.query(statusQuery));
  } catch {
    return null;
  }
}

/** `step 34/120 grpo · reward 0.41 · pass@1 61.0 % · 8421 tokens/s · ETA 2 min`. */
export function progressLine(status: RunStatus): string {
  const parts = [`step ${Math.max(status.step, 0)}/${status.totalSteps} ${status.trainingPhase}`.trim()];
  const last = status.recent.at(-1);
  if (last) parts.push(...figures(last.metrics));
  const evaluation = status.evaluations.at(-1);
  if (evaluation) parts.push(`pass@1 ${percent(evaluation.pass_at_1)}`);
  if (status.sampleSeconds > 0) parts.push(`${Math.round(status.tokens / status.sampleSeconds)} tokens/s`);
  if (status.blocked) parts.push(`blocked: ${status.blocked.reason}`, status.blocked.remedy);
  else if (status.phase === 'paused') parts.push(`paused; longhaul resume ${status.run}`);
  else if (isWaiting(status)) parts.push(status.phase);
  // Supervised steps have another pace and are few: they say nothing about the rest.
  else if (last?.kind === 'grpo') parts.push(`ETA ${timeSpan(remainingSeconds(status))}`);
  else parts.push('warm start');
  return parts.join(' · ');
}

async function showUntil(
  client: Client,
  handle: RunHandle,
  output: NodeJS.WriteStream | undefined,
  signal: AbortSignal,
): Promise<void> {
  if (!output) return;
  let shown = '';
  while (!signal.aborted) {
    const [status, [waiting]] = await Promise.all([queryStatus(client, handle), waitingFor(client, handle)]);
    const progress = status ? progressLine(status) : 'waiting for an answer of the run';
    const line = waiting ? `${progress} · ${waitingLine(waiting)}` : progress;
    // Away from a terminal a line counts once: when its step, phase or trouble is new.
    const key = output.isTTY
      ? line
      : status
        ? `${status.step} ${status.blocked?.reason ?? ''} ${status.phase === 'paused'} ${waiting?.reason ?? ''}`
        : shown;
    if (key !== shown)
      output.write(output.isTTY ? `\r\u001b[2K${line.slice(0, (output.columns ?? 120) - 1)}` : `${line}\n`);
    shown = key;
    await delay(pollMs, undefined, { signal }).catch(() => undefined);
  }
  if (output.isTTY) output.write('\r\u001b[2K');
}

function figures(metrics: Record<string, number>): string[] {
  const reward = metrics['reward/avg_raw_reward'];
  if (reward !== undefined) return [`reward ${reward.toFixed(2)}`];
  const loss = metrics['policy/final_loss'] ?? metrics['loss'];
  return loss === undefined ? [] : [`loss ${loss.toFixed(3)}`];
}

function isWaiting(status: RunStatus): boolean {
  const waiting: readonly RunStatus['phase'][] = [
    'starting',
    'placing',
    'evaluating',
    'reporting',
    'completed',
    'stopped',
  ];
  return waiting.includes(status.phase) || status.recent.length === 0;
}

/** By the pace of the last steps of the newest one's kind. */
function remainingSeconds({ recent, totalSteps, step }: RunStatus): number {
  const kind = recent.at(-1)?.kind;
  const alike = recent.filter((one) => one.kind === kind).slice(-8);
  const mean = alike.reduce((sum, one) => sum + one.seconds, 0) / Math.max(1, alike.length);
  return mean * (totalSteps - step);
}

/**
 * Asks again and again instead of waiting in one long call: Temporal may restart meanwhile, and a call that is left behind
 * when its connection closes would end this process.
 */
async function resultWhenClosed(
  client: Client,
  handle: RunHandle,
  signal: AbortSignal | undefined,
): Promise<TrainingResult> {
  for (;;) {
    signal?.throwIfAborted();
    const status = await statusName(client, handle);
    if (status !== null && !openStatuses.includes(status)) {
      return client.withDeadline(Date.now() + resultDeadlineMs, () => handle.result());
    }
    await delay(pollMs, undefined, signal ? { signal } : {}).catch(() => undefined);
  }
}

/** Null while Temporal does not answer. */
async function statusName(client: Client, handle: RunHandle): Promise<string | null> {
  try {
    const { status } = await client.withDeadline(Date.now() + queryDeadlineMs, () => handle.describe());
    return status.name;
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) throw error;
    return null;
  }
}
