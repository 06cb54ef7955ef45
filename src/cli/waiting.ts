// What keeps a run from going on: activities that failed and are tried again, that nobody has taken, or that somebody has
// paused. Only the server knows them.
import type { Client } from '@temporalio/client';
import type { RunHandle } from './temporal-access.js';

const describeDeadlineMs = 3_000;
/** Long enough for any worker that is there to take a task. */
const takenWithinMs = 5_000;
/** temporal.api.enums.v1.PendingActivityState, also while the server backs off. Whatever has a worker waits for nothing. */
const scheduled = 1;
const paused = 4;
const pauseRequested = 5;

export interface Waiting {
  /** `step-000120/collect` */
  activity: string;
  /** The next try. */
  attempt: number;
  /** Why the try before failed, that no worker takes it, or that somebody has paused it (`temporal activity pause`). */
  reason: string;
}

/** Empty where nothing waits, and while Temporal does not answer. */
export async function waitingFor(client: Client, handle: RunHandle): Promise<Waiting[]> {
  const described = await client
    .withDeadline(Date.now() + describeDeadlineMs, () => handle.describe())
    .catch(() => null);
  return (described?.raw.pendingActivities ?? []).flatMap((pending) => {
    const { activityId, attempt, lastFailure, state, scheduledTime } = pending;
    const entry = { activity: activityId ?? '', attempt: attempt ?? 1 };
    const way = `temporal activity unpause -w ${handle.workflowId} -a ${entry.activity}`;
    if (Number(state) === paused) return [{ ...entry, reason: `it is paused; go on with: ${way}` }];
    if (Number(state) === pauseRequested)
      return [{ ...entry, reason: `it is to be paused, and may end before; go on with: ${way}` }];
    if (Number(state) !== scheduled) return [];
    if (lastFailure) return [{ ...entry, reason: firstLine(lastFailure.message ?? 'it failed') }];
    const waitedMs = Date.now() - 1000 * Number(scheduledTime?.seconds ?? Infinity);
    return waitedMs > takenWithinMs ? [{ ...entry, reason: 'no worker has taken it' }] : [];
  });
}

/** `waits for step-000120/collect, try 7: no space is left …`. */
export function waitingLine({ activity, attempt, reason }: Waiting): string {
  return `waits for ${activity}, try ${attempt}: ${reason}`;
}

function firstLine(text: string): string {
  return text.trim().split('\n')[0] ?? '';
}
