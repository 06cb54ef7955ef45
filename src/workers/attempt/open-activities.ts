// Keeps the task tokens of running activities on disk. A starting worker fails its dead predecessor's activities, so that the server tries
// them again after 100 ms and does not wait for a heartbeat time-out (R28).
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

interface OpenActivity {
  activity: string;
  /** In base64. */
  taskToken: string;
}

/** Longer than a Temporal server needs to restart and receive the results that it missed. */
const keptAfterReturnMs = 20_000;
/** Matches a server's refusal of a token from another namespace or of an unreadable token. The client drops the error codes. */
const isForeign = /token from a different namespace|deserializing task token/i;
/** Time limit for all tokens together, as work begins only after the clean-up. */
const cleanUpMs = 10_000;

export class OpenActivities {
  private readonly closing = new Map<string, NodeJS.Timeout>();

  constructor(private readonly folder: string) {
    mkdirSync(folder, { recursive: true });
  }

  /** Stores the token; returns a function to call at the activity's end. The writes are synchronous, so that a kill loses no token. */
  open(activity: OpenActivity): () => void {
    const name = createHash('sha256').update(activity.taskToken).digest('hex').slice(0, 32);
    const path = join(this.folder, `${name}.json`);
    writeFileSync(path, JSON.stringify(activity));
    // Keep the token for a while after the activity's end. If the worker is killed before the server has the result, the activity would
    // otherwise wait for its heartbeat time-out; if the server has it, failing the activity does nothing. The suffix `.returned` shows
    // readers of the folder that the activity no longer runs here.
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

  /** Call when the worker has sent all results to the server. */
  handedOver(): void {
    for (const [path, timer] of this.closing) {
      clearTimeout(timer);
      rmSync(path, { force: true });
    }
    this.closing.clear();
  }

  /**
   * Fails the predecessor's activities and returns their names. Call before this worker polls, and only when its predecessor is dead. Never
   * throws: an activity that cannot be failed is logged, and waits for its heartbeat time-out; its token is kept for the next start.
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
      log(`${what} of an earlier worker must wait for its heartbeat time-out: ${error.message}`);
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
    // The server has given up the attempt, or the workflow is closed. If the server lost its database, or the worker now uses another
    // server, the namespace in the token no longer exists, and no server will ever accept the token.
    if (error instanceof ActivityNotFoundError || error instanceof NamespaceNotFoundError) return false;
    if (error instanceof ActivityCompletionError && isForeign.test(error.message)) return false;
    throw error;
  }
}

/** Null if a kill cut off the file: its activity had not begun. */
function parse(text: string): OpenActivity | null {
  try {
    const open = JSON.parse(text) as Partial<OpenActivity> | null;
    if (typeof open?.activity !== 'string' || typeof open.taskToken !== 'string') return null;
    return { activity: open.activity, taskToken: open.taskToken };
  } catch {
    return null;
  }
}
