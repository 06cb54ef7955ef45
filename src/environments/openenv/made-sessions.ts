// The sessions that this node has created on servers that keep them until they are closed. Each open session has a file on the node's disk,
// because the session of a killed node would keep its place on the server for ever: the next process closes the sessions that it finds here.
//
// A session stays open for ever if the server's answer with its id is lost, or if the node is killed before it has written the file.
import { isObject } from '../../base/json.js';
import { mkdir, readdir, readFile, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Backoff } from '../../base/backoff.js';
import { sha256Hex } from '../../base/sha256.js';
import type { KeptSession, SessionNotes } from '../environment-kind.js';
import { askMcp } from './mcp-request.js';

type Headers = Readonly<Record<string, string>>;

const answerWithinMs = 10_000;
const triesToClose = 60;

export class MadeSessions implements SessionNotes {
  constructor(
    private readonly folder: string,
    private readonly log: (message: string) => void,
  ) {}

  async add(session: KeptSession): Promise<void> {
    await mkdir(this.folder, { recursive: true });
    await writeFile(this.#pathOf(session), JSON.stringify(session));
  }

  async close(session: KeptSession, headers: Headers): Promise<void> {
    const pauses = new Backoff([100, 60_000]);
    for (let tries = 0; tries < triesToClose; tries++) {
      if (await this.#tryToClose(session, headers)) return;
      await sleep(pauses.next(), undefined, { ref: false });
    }
    this.log(`${session.url} does not answer: a session there may stay open`);
  }

  /** Closes what an earlier process left. `headersOf` returns the headers of a variable; an Error that it throws is logged. */
  async closeLeft(headersOf: (headersEnv: string) => Headers): Promise<void> {
    const names: string[] = await readdir(this.folder).catch(() => []);
    await Promise.all(
      names.map(async (name) => {
        const path = join(this.folder, name);
        const session = keptSession(await readFile(path, 'utf8').catch(() => ''));
        // If a process was killed while it wrote this file, its session had no id yet.
        if (!session) return unlink(path).catch(() => undefined);
        try {
          const headers = session.headers_env === undefined ? {} : headersOf(session.headers_env);
          await this.close(session, headers);
        } catch (error) {
          this.log(`a session on ${session.url} stays open: ${(error as Error).message}`);
        }
      }),
    );
  }

  async #tryToClose(session: KeptSession, headers: Headers): Promise<boolean> {
    try {
      // It counts as an answer, too, if the server no longer knows the session.
      await askMcp(session, headers, 'openenv/session/close', { session_id: session.id }, answerWithinMs);
    } catch {
      return false;
    }
    await unlink(this.#pathOf(session)).catch(() => undefined);
    return true;
  }

  #pathOf({ url, id }: KeptSession): string {
    return join(this.folder, `${sha256Hex(`${url} ${id}`)}.json`);
  }
}

function keptSession(text: string): KeptSession | null {
  try {
    const session: unknown = JSON.parse(text);
    const isWhole = isObject(session) && typeof session.url === 'string' && typeof session.id === 'string';
    return isWhole ? (session as unknown as KeptSession) : null;
  } catch {
    return null;
  }
}
