// Follows a workflow that a person has started: its progress, its result, or why it has none.
import { setTimeout as delay } from 'node:timers/promises';
import { type Workflow, WorkflowFailedError, type WorkflowHandle } from '@temporalio/client';
import { CancelledFailure, type QueryDefinition, type WorkflowResultType } from '@temporalio/common';
import { printable } from './printable.js';
import { whyItEnded } from './train/start-training.js';

const reportEveryMs = 2_000;

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
    return await handle.result();
  } catch (error) {
    if (!(error instanceof WorkflowFailedError)) throw error;
    const why = error.cause instanceof CancelledFailure ? how.cancelled : whyItEnded(error);
    throw new Error(why, { cause: error });
  } finally {
    over = true;
    await reported;
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
