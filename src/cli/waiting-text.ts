// Says what holds up a run: activities that failed and are retried, that no worker has taken, that were paused by hand, or that wait for an
// environment or the store. Only the Temporal server knows this.
import type { Client, WorkflowExecutionDescription, WorkflowHandle } from '@temporalio/client';
import { defaultPayloadConverter } from '@temporalio/common';
import type { ReportedWait } from '../activities/step/open-waits.js';
import { policyServer } from '../engine/policy-engine.js';
import { timeSpan } from '../report/format.js';

const describeDeadlineMs = 3_000;
/** Long enough for any running worker to take a task. */
const takenWithinMs = 5_000;
/** A call is retried for this long before the wait is shown: a short wait is no problem yet. */
const shownAfterMs = 3_000;
/** temporal.api.enums.v1.PendingActivityState. An activity is also `scheduled` while the server backs off. */
const scheduled = 1;
const started = 2;
const paused = 4;
const pauseRequested = 5;

export interface Waiting {
  /** `step-000120/collect` */
  activity: string;
  /** Number of the next try. */
  attempt: number;
  /**
   * One of: why the last try failed; what the running try waits for; that no worker has taken the activity; that the activity was paused by
   * hand (`temporal activity pause`).
   */
  reason: string;
  /** How long a running try has waited. */
  seconds?: number;
}

/** Episodes of an evaluation that is under way. */
export interface Played {
  finished: number;
  of: number;
}

/** Empty if nothing waits, or if Temporal does not answer. */
export async function waitingFor(client: Client, handle: Described): Promise<Waiting[]> {
  return (await underWay(client, handle)).waiting;
}

type Described = Pick<WorkflowHandle, 'workflowId' | 'describe'>;

/** What holds the run up, and how far its evaluation is: null if none is played now. */
export async function underWay(
  client: Client,
  handle: Described,
): Promise<{ waiting: Waiting[]; played: Played | null }> {
  const described = await client
    .withDeadline(Date.now() + describeDeadlineMs, () => handle.describe())
    .catch(() => null);
  const pending = described?.raw.pendingActivities ?? [];
  const played = pending
    .filter(({ activityId }) => /(^|\/)evaluate-/.test(activityId ?? ''))
    .map(({ heartbeatDetails }) => playedIn(heartbeatDetails?.payloads?.[0]))
    .find((one) => one !== null);
  return { waiting: waitsAmong(pending, handle), played: played ?? null };
}

type PendingActivities = NonNullable<WorkflowExecutionDescription['raw']['pendingActivities']>;

function waitsAmong(activities: PendingActivities, handle: Pick<Described, 'workflowId'>): Waiting[] {
  return activities.flatMap((pending) => {
    const { activityId, attempt, lastFailure, state, scheduledTime } = pending;
    const entry = { activity: activityId ?? '', attempt: attempt ?? 1 };
    const way = `temporal activity unpause -w ${handle.workflowId} -a ${entry.activity}`;
    if (Number(state) === paused) return [{ ...entry, reason: `it is paused; continue with: ${way}` }];
    if (Number(state) === pauseRequested)
      return [
        {
          ...entry,
          reason: `it is being paused, but its current try may still finish; continue with: ${way}`,
        },
      ];
    if (Number(state) === started) {
      const wait = waitIn(pending.heartbeatDetails?.payloads?.[0]);
      const forMs = wait ? Date.now() - wait.waiting_since : 0;
      return wait && forMs > shownAfterMs
        ? [{ ...entry, reason: whatFor(wait), seconds: Math.round(forMs / 1000) }]
        : [];
    }
    if (Number(state) !== scheduled) return [];
    if (lastFailure) return [{ ...entry, reason: firstLine(lastFailure.message ?? 'it failed') }];
    const waitedMs = Date.now() - 1000 * Number(scheduledTime?.seconds ?? Infinity);
    return waitedMs > takenWithinMs ? [{ ...entry, reason: 'no worker has taken it' }] : [];
  });
}

/** `waits for step-000120/collect, try 7, for 1 min 11 s: no space is left …`. */
export function waitingLine({ activity, attempt, reason, seconds }: Waiting): string {
  const time = seconds === undefined ? '' : `, for ${timeSpan(seconds)}`;
  return `waits for ${activity}, try ${attempt}${time}: ${reason}`;
}

/** The line without its counters, so that it stays the same while the problem is the same. */
export function troubleOf(line: string): string {
  return line.replace(/, try \d+(, for [^:]*)?/, '').replace(/: \d+ episodes? waits? for /, ': ');
}

function whatFor({ waiting, waiting_episodes, waiting_reason, waiting_until }: ReportedWait): string {
  const who =
    waiting_episodes === 0
      ? 'it waits for '
      : `${waiting_episodes} ${waiting_episodes === 1 ? 'episode waits' : 'episodes wait'} for `;
  if (waiting === 'store') return `${who}the store, which does not answer`;
  if (waiting === policyServer)
    return `${who}the Tinker server${waiting_reason ? ` (${firstLine(waiting_reason)})` : ''}`;
  const until = waiting_until === undefined ? '' : new Date(waiting_until).toISOString().slice(11, 16);
  return (
    `${who}environment ${waiting}` +
    (waiting_reason ? ` (${firstLine(waiting_reason)})` : '') +
    (until ? `; the run is blocked if it does not answer by ${until} UTC` : '')
  );
}

type Payload = Parameters<typeof defaultPayloadConverter.fromPayload>[0];

function playedIn(payload: Payload | null | undefined): Played | null {
  const { finished, of } = reportIn(payload) as Partial<Played>;
  return typeof finished === 'number' && typeof of === 'number' ? { finished, of } : null;
}

/** The report of a running attempt; empty if there is none, or if a codec that only its owner has encoded it. */
function reportIn(payload: Payload | null | undefined): object {
  if (!payload) return {};
  try {
    return defaultPayloadConverter.fromPayload<object | null>(payload) ?? {};
  } catch {
    return {};
  }
}

/** The wait that a running attempt reports. Null if it waits for nothing. */
function waitIn(payload: Payload | null | undefined): ReportedWait | null {
  const wait = reportIn(payload) as Partial<ReportedWait>;
  return typeof wait.waiting === 'string' && typeof wait.waiting_since === 'number'
    ? {
        waiting_episodes: wait.waiting === policyServer ? 0 : 1,
        ...wait,
        ...{ waiting: wait.waiting, waiting_since: wait.waiting_since },
      }
    : null;
}

function firstLine(text: string): string {
  return text.trim().split('\n')[0] ?? '';
}
