// Follows a workflow that a person has started: whether it begins its work, its progress, its result, or why it has none.
import { setTimeout as delay } from 'node:timers/promises';
import { type Workflow, WorkflowFailedError, type WorkflowHandle } from '@temporalio/client';
import { CancelledFailure, type QueryDefinition, type WorkflowResultType } from '@temporalio/common';
import { printable } from './output.js';
import { openStatuses } from './temporal-access.js';
import { whyItEnded } from './train/start-training.js';

const reportEveryMs = 2_000;
/** A workflow reports a refused spec within a second or two. A start does not wait longer for workers that may not be running. */
export const beginsWithinMs = 10_000;
const lookEveryMs = 250;
const answerWithinMs = 3_000;

interface Followed<Status> {
  status: QueryDefinition<Status>;
  text: (status: Status) => string;
  /** What a person reads if somebody cancels the workflow. */
  cancelled: string;
}

/** Reports progress on standard error until the workflow ends. Throws its failure as people read it. */
export async function followed<W extends Workflow, Status>(
  handle: WorkflowHandle<W>,
  how: Followed<Status>,
): Promise<WorkflowResultType<W>> {
  let over = false;
  const reported = reportProgress(handle, how, () => over);
  try {
    return await resultOf(handle, how);
  } finally {
    over = true;
    await reported;
  }
}

/** False if the workflow does not answer within `beginsWithinMs` that it has `begun`. Throws its failure as people read it. */
export async function hasBegun<W extends Workflow, Status>(
  handle: WorkflowHandle<W>,
  how: Pick<Followed<Status>, 'status' | 'cancelled'> & { begun: (status: Status) => boolean },
): Promise<boolean> {
  const answer = <T>(call: () => Promise<T>): Promise<T> =>
    handle.client.withDeadline(Date.now() + answerWithinMs, call);
  const begun = await whenBegun(async () => {
    const { status } = await answer(() => handle.describe());
    if (!openStatuses.includes(status.name)) return resultOf(handle, how).then(() => true);
    const now = await answer(() => handle.query(how.status)).catch(() => null);
    return now !== null && how.begun(now) ? true : null;
  });
  return begun ?? false;
}

/** The first answer of `look` that is not null; null if there is none within `beginsWithinMs`. */
export async function whenBegun<Answer>(look: () => Promise<Answer | null>): Promise<Answer | null> {
  const deadline = Date.now() + beginsWithinMs;
  while (Date.now() < deadline) {
    const answer = await look();
    if (answer !== null) return answer;
    await delay(lookEveryMs);
  }
  return null;
}

async function resultOf<W extends Workflow>(
  handle: WorkflowHandle<W>,
  { cancelled }: { cancelled: string },
): Promise<WorkflowResultType<W>> {
  try {
    return await handle.result();
  } catch (error) {
    if (!(error instanceof WorkflowFailedError)) throw error;
    const why = error.cause instanceof CancelledFailure ? cancelled : whyItEnded(error);
    throw new Error(why, { cause: error });
  }
}

async function reportProgress<W extends Workflow, Status>(
  handle: WorkflowHandle<W>,
  { status: query, text: textOf }: Followed<Status>,
  over: () => boolean,
): Promise<void> {
  let last = '';
  while (!over()) {
    const status = await handle.query(query).catch(() => null);
    const text = status ? printable(textOf(status)) : last;
    if (text !== last && !over()) process.stderr.write(`${text}\n`);
    last = text;
    for (let waited = 0; waited < reportEveryMs && !over(); waited += 100) await delay(100);
  }
}
