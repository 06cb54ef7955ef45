// Task tokens of the activities that run here, on disk: a starting worker fails those of its dead predecessor, so that the server tries
// them again in 100 ms instead of waiting for a heartbeat time-out (R28).
import { createHash } from 'node:crypto';
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { ApplicationFailure, NamespaceNotFoundError } from '@temporalio/common';
import {
  ActivityCompletionError,
  ActivityNotFoundError,
  type AsyncCompletionClient,
} from '@temporalio/client';

export interface OpenActivity {
  activity: string;
  /** base64 */
  taskToken: string;
}

/** Longer than a Temporal server takes to restart and to receive what it missed. */
const keptAfterReturnMs = 20_000;
/** How a server refuses the token of another namespace, and one that it cannot read. The client drops the error codes. */
const isForeign = /token from a different namespace|deserializing task token/i;
/** For all tokens together: no work begins before they are dealt with. */
const cleanUpMs = 10_000;

export class OpenActivities {
  private readonly closing = new Map<string, NodeJS.Timeout>();

  constructor(private readonly folder: string) {
    mkdirSync(folder, { recursive: true });
  }

  /** Returns the function that closes it. Small synchronous writes: a few a step, and none may be lost in a kill. */
  open(activity: OpenActivity): () => void {
    const name = createHash('sha256').update(activity.taskToken).digest('hex').slice(0, 32);
    const path = join(this.folder, `${name}.json`);
    writeFileSync(path, JSON.stringify(activity));
    // The server does not yet know that a returned activity is done: if the worker is killed in between, the activity would wait for the
    // heartbeat time-out. Failing one that is known to be done does nothing. The file's name shows readers of the folder that the activity
    // no longer runs here.
    return () => {
      const returned = path.replace(/\.json$/, '.returned.json');
      renameSync(path, returned);
      const timer = setTimeout(() => {
        this.closing.delete(returned);
        rmSync(returned, { force: true });
      }, keptAfterReturnMs);
      timer.unref();
      this.closing.set(returned, timer);
    };
  }

  /** Call when the worker has handed over all results. */
  handedOver(): void {
    for (const [path, timer] of this.closing) {
      clearTimeout(timer);
      rmSync(path, { force: true });
    }
    this.closing.clear();
  }

  /**
   * Call before this worker polls, and only when its predecessor is dead. Returns the names of the failed ones. Never throws: a token that
   * cannot be failed now is logged and kept for the next start; its heartbeats time out meanwhile.
   */
  async failPredecessors(client: AsyncCompletionClient, log: (message: string) => void): Promise<string[]> {
    const failed: string[] = [];
    const failOne = async (name: string): Promise<void> => {
      const path = join(this.folder, name);
      const open = parse(await readFile(path, 'utf8'));
      if (open && (await fail(client, open))) failed.push(open.activity);
      await rm(path, { force: true });
    };
    const problem = (what: string, error: Error): void =>
      log(`${what} of an earlier worker left to its heartbeat time-out: ${error.message}`);
    try {
      const names = await readdir(this.folder);
      await client.withDeadline(Date.now() + cleanUpMs, () =>
        Promise.all(
          names.map((name) => failOne(name).catch((error: Error) => problem(`activity ${name}`, error))),
        ),
      );
    } catch (error) {
      problem('activities', error as Error);
    }
    return failed;
  }
}

async function fail(client: AsyncCompletionClient, { activity, taskToken }: OpenActivity): Promise<boolean> {
  const failure = ApplicationFailure.create({
    message: `the worker that ran ${activity} has ended; its successor tries again`,
    type: 'WorkerRestarted',
    nextRetryDelay: 100,
  });
  try {
    await client.fail(Buffer.from(taskToken, 'base64'), failure);
    return true;
  } catch (error) {
    // The server has given the attempt up, or the workflow is closed. A token holds the id of a namespace, which is another one if the
    // server's database was lost or the worker was pointed at another server: no server can ever take it.
    if (error instanceof ActivityNotFoundError || error instanceof NamespaceNotFoundError) return false;
    if (error instanceof ActivityCompletionError && isForeign.test(error.message)) return false;
    throw error;
  }
}

/** Null for a file cut off by a kill: its activity had not begun. */
function parse(text: string): OpenActivity | null {
  try {
    const open = JSON.parse(text) as Partial<OpenActivity> | null;
    if (typeof open?.activity !== 'string' || typeof open.taskToken !== 'string') return null;
    return { activity: open.activity, taskToken: open.taskToken };
  } catch {
    return null;
  }
}
