// Shows a run while it trains. A terminal has one changing line, with evaluations and problems above it; other outputs get one line a step.
import { setTimeout as delay } from 'node:timers/promises';
import { type Client, WorkflowNotFoundError } from '@temporalio/client';
import type { RunStatus } from '../../activities/contracts.js';
import { timeSpan } from '../../report/format.js';
import { countedPassRate, passRateText } from '../../spec/pass-rate.js';
import { statusQuery } from '../../workflows/messages.js';
import { headline, remainingSeconds, suiteText } from '../../workflows/status/run-text.js';
import type { TrainingResult } from '../../workflows/run/training-run.js';
import { fullDiskNote } from '../../stack/disk-space.js';
import { inFolder } from '../output.js';
import { nearestStackFolder } from '../stack-folder.js';
import { changesLines, clear } from '../elapsed-line.js';
import { openStatuses, type RunHandle } from '../temporal-access.js';
import { type Played, troubleOf, underWay, waitingLine } from '../waiting-text.js';

const pollMs = 500;
const queryDeadlineMs = 3_000;
/** Longer than a restart of the orchestrator or of Temporal takes. */
const silenceMs = 10_000;
const resultDeadlineMs = 15_000;
/** Time between two lines about one evaluation where the output is no terminal. */
const evaluationLineMs = 15_000;

interface FollowOptions {
  /** If absent, nothing is shown. */
  output?: NodeJS.WriteStream;
  signal?: AbortSignal;
  /** Folder of the embedded stack if a person named it; it goes into the commands that are shown. */
  folder?: string | undefined;
}

/** Shows the run until its workflow ends. Returns the run's result, or throws the error that ended it. */
export async function followRun(
  client: Client,
  handle: RunHandle,
  { output, signal, folder }: FollowOptions,
): Promise<TrainingResult> {
  const stop = new AbortController();
  const shown = showUntil(
    client,
    handle,
    output,
    folder,
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
async function queryStatus(client: Client, handle: RunHandle): Promise<RunStatus | null> {
  try {
    return await client.withDeadline(Date.now() + queryDeadlineMs, () => handle.query(statusQuery));
  } catch {
    return null;
  }
}

/**
 * `step 34/120 grpo · reward 0.41 · pass@1 61.0 % · 8421 tokens/s · about 2 min left`. `ended`: how the workflow ended if it did not complete.
 */
export function progressLine(
  status: RunStatus,
  ended: string | null = null,
  folder?: string,
  played: Played | null = null,
): string {
  const where = inFolder({ folder });
  const { step, totalSteps, trainingPhase } = status;
  const last = status.recent.at(-1);
  const parts: string[] = [];
  // Before the base model exists, `trainingPhase` belongs to no step.
  if (totalSteps > 0)
    parts.push(step < 0 ? `step 0/${totalSteps}` : `step ${step}/${totalSteps} ${trainingPhase}`.trim());
  // A workflow that continued as new knows its last steps before it has opened the run again.
  else if (last) parts.push(`step ${last.step}`);
  const figure = last ? headline(last) : null;
  if (figure) parts.push(figure);
  const evaluation = status.evaluations.at(-1);
  if (evaluation)
    parts.push(`pass@1 ${passRateText(evaluation.pass_at_1)}${evaluation.before_grpo ? ' before GRPO' : ''}`);
  if (status.sampleSeconds > 0) parts.push(`${Math.round(status.tokens / status.sampleSeconds)} tokens/s`);
  if (ended !== null) parts.push(ended);
  else if (status.blocked)
    parts.push(`blocked: ${status.blocked.reason}`, `${status.blocked.remedy}${where}`);
  else if (status.failing)
    parts.push(`keeps failing: ${status.failing.reason}`, `${status.failing.remedy}${where}`);
  else if (status.phase === 'paused') parts.push(`paused; longhaul resume ${status.run}${where}`);
  else if (status.phase === 'placing') parts.push(`waits for a node: ${status.waitsFor ?? ''}`);
  else if (isWaiting(status)) parts.push(playedText(status, played));
  // Supervised steps are few and have another pace, so they do not predict the rest.
  else if (last?.kind === 'grpo') parts.push(`about ${timeSpan(remainingSeconds(status))} left`);
  else if (trainingPhase === 'grpo') parts.push(status.phase);
  else parts.push('warm start');
  return parts.join(' · ');
}

/** `evaluating: 37 of 128 episodes`. */
function playedText({ phase }: RunStatus, played: Played | null): string {
  return phase === 'evaluating' && played ? `${phase}: ${played.finished} of ${played.of} episodes` : phase;
}

async function showUntil(
  client: Client,
  handle: RunHandle,
  output: NodeJS.WriteStream | undefined,
  folder: string | undefined,
  signal: AbortSignal,
): Promise<void> {
  if (!output) return;
  const view = changesLines(output) ? new ChangingLine(output, folder) : new LinePerStep(output, folder);
  let answeredAt = Date.now();
  while (!signal.aborted) {
    const [status, { waiting, played }] = await Promise.all([
      queryStatus(client, handle),
      underWay(client, handle),
    ]);
    if (status) {
      answeredAt = Date.now();
      view.show(status, waiting[0] ? waitingLine(waiting[0]) : null, played);
    } else if (Date.now() - answeredAt > silenceMs) {
      view.silent(Date.now() - answeredAt);
    }
    await delay(pollMs, undefined, { signal }).catch(() => undefined);
  }
  view.end();
}

interface View {
  show(status: RunStatus, waiting: string | null, played?: Played | null): void;
  silent(forMs: number): void;
  end(): void;
}

/** Evaluations and problems stay on the screen in full. The line below them changes and is cut to the window's width. */
export class ChangingLine implements View {
  private evaluations = 0;
  private trouble: string | null = null;

  constructor(
    private readonly output: Pick<NodeJS.WriteStream, 'write' | 'columns'>,
    private readonly folder?: string,
  ) {}

  show(status: RunStatus, waiting: string | null, played: Played | null = null): void {
    for (const { step, suite, ...evaluation } of status.evaluations.slice(this.evaluations)) {
      this.keep(
        `step ${step} · ${suiteText({ suite, ...evaluation })} evaluation · pass@1 ${countedPassRate(evaluation)}`,
      );
    }
    this.evaluations = Math.max(this.evaluations, status.evaluations.length);
    const { blocked, failing } = status;
    const held = blocked ?? failing;
    const trouble = held
      ? `${blocked ? 'blocked' : 'keeps failing'}: ${held.reason} · ${held.remedy}${inFolder({ folder: this.folder })}`
      : waiting;
    // Tries and times keep changing; a problem is the same as long as its reason is the same.
    const kind = held?.reason ?? (waiting === null ? null : troubleOf(waiting));
    if (trouble !== null && kind !== this.trouble) this.keep(trouble);
    this.trouble = kind;
    this.change(progressLine(status, null, this.folder, played));
  }

  silent(forMs: number): void {
    this.change(silence(forMs, this.folder));
  }

  end(): void {
    this.output.write(clear);
  }

  private keep(line: string): void {
    this.output.write(`${clear}${line}\n`);
  }

  private change(line: string): void {
    this.output.write(`${clear}${line.slice(0, (this.output.columns ?? 120) - 1)}`);
  }
}

/** Prints a line only when its step, phase or problem is new, and from time to time while an evaluation is played. */
export class LinePerStep implements View {
  private key = '';
  private printedAt = 0;
  private finished = 0;
  private isSilent = false;

  constructor(
    private readonly output: Pick<NodeJS.WriteStream, 'write'>,
    private readonly folder?: string,
    private readonly now: () => number = Date.now,
  ) {}

  show(status: RunStatus, waiting: string | null, played: Played | null = null): void {
    this.isSilent = false;
    const trouble = waiting === null ? '' : troubleOf(waiting);
    const key = `${status.step} ${(status.blocked ?? status.failing)?.reason ?? ''} ${status.phase === 'paused'} ${trouble}`;
    const isFurther = played !== null && played.finished !== this.finished;
    if (key === this.key && !(isFurther && this.now() - this.printedAt >= evaluationLineMs)) return;
    this.key = key;
    this.printedAt = this.now();
    this.finished = played?.finished ?? 0;
    this.output.write(
      `${progressLine(status, null, this.folder, played)}${waiting === null ? '' : ` · ${waiting}`}\n`,
    );
  }

  silent(forMs: number): void {
    if (!this.isSilent) this.output.write(`${silence(forMs, this.folder)}\n`);
    this.isSilent = true;
  }

  end(): void {}
}

function silence(forMs: number, folder?: string): string {
  const full = fullDiskNote(folder ?? nearestStackFolder());
  if (full !== null) return `the run has not answered for ${timeSpan(forMs / 1000)}: ${full}`;
  return `the run has not answered for ${timeSpan(forMs / 1000)}; longhaul doctor${inFolder({ folder })} may show why`;
}

function isWaiting(status: RunStatus): boolean {
  const waiting: readonly RunStatus['phase'][] = [
    'starting',
    'evaluating',
    'reporting',
    'completed',
    'stopped',
  ];
  return waiting.includes(status.phase) || status.recent.length === 0;
}

/**
 * Polls instead of waiting in one long call. Temporal may restart during such a call, and a call that is still open when its connection
 * closes would end this process.
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
