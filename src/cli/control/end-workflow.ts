// Cancels a run's workflow for `cancel`, `rewind` and `rebase`. The cancelled workflow releases its node, writes its report and ends.
import { setTimeout as delay } from 'node:timers/promises';
import { type Client, WorkflowNotFoundError } from '@temporalio/client';
import { inFolder } from '../output.js';
import { openStatuses, runHandle, type TemporalFlags } from '../temporal-access.js';

const answerWithinMs = 10_000;
const pollMs = 250;

/** Cancels the workflow of this name and waits until it has ended; false if none was open. */
export async function endWorkflow(
  client: Client,
  name: string,
  { wait: seconds, ...flags }: TemporalFlags & { wait: number },
): Promise<boolean> {
  const handle = runHandle(client, name);
  const deadline = Date.now() + seconds * 1000;
  const within = <T>(call: () => Promise<T>): Promise<T> =>
    client.withDeadline(Date.now() + answerWithinMs, call);
  let cancelled: string | null = null;
  while (Date.now() < deadline) {
    const described = await within(() => handle.describe()).catch((error: unknown) => {
      if (error instanceof WorkflowNotFoundError) return null;
      throw error;
    });
    if (!described || !openStatuses.includes(described.status.name)) return cancelled !== null;
    // If the workflow has continued as new since then, the new execution has not received the cancellation.
    if (cancelled !== described.runId) {
      process.stderr.write(`cancelling the workflow of ${name}: it writes its report and ends\n`);
      await within(() => handle.cancel());
      cancelled = described.runId;
    }
    await delay(pollMs);
  }
  throw new Error(
    `the workflow of ${name} was cancelled and has not ended within ${seconds} s: a worker must be up (longhaul doctor${inFolder(flags)}). ` +
      'Nothing else was changed; give the same command again',
  );
}
