// Measures how soon a death is noticed: from the kill until other processes can see it, by the clock of the process that killed.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { OpenTrial } from '../../test/chaos/trial.js';
import { pidOf } from '../../test/chaos/victims.js';

/** An open activity, as the Temporal server describes it. */
export interface OpenAttempt {
  activity: string;
  attempt: number;
  /** Identity of the worker that received the newest attempt. */
  worker: string;
  /** True while a worker runs the attempt; false while the attempt waits for a worker. */
  underWay: boolean;
  /** When the server learned that the previous attempt had failed, Unix time in ms. */
  failedAt: number | null;
}

/**
 * Seconds from the kill until the server knew that all attempts which the kill ended had failed; NaN if the kill ended no attempt.
 * `before`: attempts running at the kill. `after`: all open attempts, seen at later moments, in order. `calledOff`: when the run cancelled
 * an activity because its node was declared lost, Unix time in ms.
 */
export function knownAfter(
  killedAt: number,
  before: readonly OpenAttempt[],
  after: readonly (readonly OpenAttempt[])[],
  calledOff: ReadonlyMap<string, number> = new Map(),
): number {
  const calledOffSince = (activity: string): number | [] => {
    const at = calledOff.get(activity);
    return at !== undefined && at >= killedAt ? at : [];
  };
  const known = before.flatMap((one) => failureOf(one, killedAt, after) ?? calledOffSince(one.activity));
  return known.length === 0 ? Number.NaN : (Math.max(...known) - killedAt) / 1000;
}

function failureOf(
  { activity, attempt }: OpenAttempt,
  killedAt: number,
  after: readonly (readonly OpenAttempt[])[],
): number | null {
  for (const open of after) {
    const now = open.find((one) => one.activity === activity);
    // The activity completed before the kill.
    if (!now) return null;
    if (now.attempt > attempt && now.failedAt !== null && now.failedAt >= killedAt) return now.failedAt;
  }
  return null;
}

/** Attempts that run on the run's node worker now. */
export async function attemptsOfNode(trial: OpenTrial): Promise<OpenAttempt[]> {
  const pid = pidOf(trial, 'node');
  return pid === null ? [] : attemptsOf(pid, await openAttempts(trial));
}

function attemptsOf(pid: number, open: readonly OpenAttempt[]): OpenAttempt[] {
  return open.filter(({ underWay, worker }) => underWay && worker.endsWith(` ${pid}`));
}

async function openAttempts({ client, workflowId }: OpenTrial): Promise<OpenAttempt[]> {
  const { raw } = await client.workflow.getHandle(workflowId).describe();
  return (raw.pendingActivities ?? []).map((one) => ({
    activity: one.activityId ?? '',
    attempt: one.attempt ?? 0,
    worker: one.lastWorkerIdentity ?? '',
    underWay: Number(one.state) === started,
    failedAt: one.lastAttemptCompleteTime ? millisecondsOf(one.lastAttemptCompleteTime) : null,
  }));
}

/** When each cancelled activity of the workflow was last cancelled, by activity id, Unix time in ms. */
async function calledOffBy({ client, workflowId }: OpenTrial): Promise<Map<string, number>> {
  const { events } = await client.workflow.getHandle(workflowId).fetchHistory();
  const ids = new Map<string, string>();
  const calledOff = new Map<string, number>();
  for (const one of events ?? []) {
    const { activityTaskScheduledEventAttributes: asked, activityTaskCancelRequestedEventAttributes: off } =
      one;
    if (asked) ids.set(String(one.eventId), asked.activityId ?? '');
    if (off && one.eventTime)
      calledOff.set(ids.get(String(off.scheduledEventId)) ?? '', millisecondsOf(one.eventTime));
  }
  return calledOff;
}

/** temporal.api.enums.v1.PendingActivityState */
const started = 2;

const millisecondsOf = ({ seconds, nanos }: { seconds?: unknown; nanos?: number | null }): number =>
  Number(seconds ?? 0) * 1000 + (nanos ?? 0) / 1e6;

const deadlineMs = 60_000;
const lookEveryMs = 25;

/**
 * `knownAfter` for a kill that has just happened. Watches until every attempt that the kill could have ended has failed or is closed.
 * `node`: pid of the process that ran the attempts. Attempts that it received after `seenBefore` was read count, too.
 */
export async function untilKnown(
  trial: OpenTrial,
  killedAt: number,
  node: number | null,
  seenBefore: readonly OpenAttempt[],
): Promise<number> {
  const first = await openAttempts(trial);
  const given = node === null ? [] : attemptsOf(node, first);
  const known = new Set(seenBefore.map(({ activity }) => activity));
  const before = [...seenBefore, ...given.filter(({ activity }) => !known.has(activity))];
  const after = [first];
  const open = (one: OpenAttempt): boolean =>
    failureOf(one, killedAt, after) === null &&
    after.every((look) => look.some(({ activity }) => activity === one.activity));
  while (!trial.over && before.some(open)) {
    if (Date.now() - killedAt > deadlineMs)
      throw new Error(`a death was not noticed within ${deadlineMs / 1000} s`);
    after.push(await openAttempts(trial));
    await delay(lookEveryMs);
  }
  return knownAfter(killedAt, before, after, await calledOffBy(trial));
}

/** Seconds from the orchestrator's kill until another process has taken over its folder, which shows that the death was noticed. */
export async function untilTakenOver(trial: OpenTrial, killedAt: number, killed: number): Promise<number> {
  const path = join(trial.folder, 'orchestrator', 'life.json');
  for (;;) {
    const { identity } = JSON.parse(readFileSync(path, 'utf8').trim() || '{}') as { identity?: string };
    if (identity !== undefined && !identity.endsWith(` ${killed}`)) return (Date.now() - killedAt) / 1000;
    if (Date.now() - killedAt > deadlineMs)
      throw new Error(`no orchestrator took the place of the dead one within ${deadlineMs / 1000} s`);
    await delay(lookEveryMs / 5);
  }
}
