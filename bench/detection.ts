// How soon a death was known: measured from the kill itself, by the clock of whoever killed, to what others could see of it.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { OpenTrial } from '../test/chaos/trial.js';
import { pidOf } from '../test/chaos/victims.js';

/** An activity that is open, as the Temporal server has it. */
export interface OpenAttempt {
  activity: string;
  attempt: number;
  /** Of the worker that the newest attempt was given to. */
  worker: string;
  /** A worker has it; else it waits for one. */
  underWay: boolean;
  /** When the server was told that the attempt before had failed; of this machine's clock, ms. */
  failedAt: number | null;
}

/**
 * Seconds from the kill until the server was told of the last of the attempts that the kill has ended; NaN where it has ended none.
 * `before`: those under way at the kill. `after`: looks after it, in order; each holds all that was open then. `calledOff`: when the
 * run has called off an activity, because its node was taken for lost before another process stood in its place.
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
  const told = before.flatMap((one) => failureOf(one, killedAt, after) ?? calledOffSince(one.activity));
  return told.length === 0 ? Number.NaN : (Math.max(...told) - killedAt) / 1000;
}

function failureOf(
  { activity, attempt }: OpenAttempt,
  killedAt: number,
  after: readonly (readonly OpenAttempt[])[],
): number | null {
  for (const open of after) {
    const now = open.find((one) => one.activity === activity);
    // It was completed, which the kill came too late for.
    if (!now) return null;
    if (now.attempt > attempt && now.failedAt !== null && now.failedAt >= killedAt) return now.failedAt;
  }
  return null;
}

/** Attempts that the run's node worker has at the moment. */
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

/** Last time that each activity of the workflow was called off, if it was; of this machine's clock, ms. */
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
 * As `knownAfter`, of a kill that has just been; follows it until nothing is left that the kill could have ended. `node`: process that
 * had the attempts; what it has been given since they were looked for is among them.
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
      throw new Error(`nobody knew of a death within ${deadlineMs / 1000} s`);
    after.push(await openAttempts(trial));
    await delay(lookEveryMs);
  }
  return knownAfter(killedAt, before, after, await calledOffBy(trial));
}

/** Seconds from the kill of the orchestrator until another process has taken its folder over, and so knows that it is dead. */
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
