// A session of a stock server of OpenEnv 0.5 or later that outlives its socket: it is made over HTTP, played on over a socket that is attached to
// it, and closed over HTTP. After a lost socket another one is attached. A request without an answer is sent again only if `state` shows that
// it was not carried out; the server knows no idempotency keys.
import { setTimeout as sleep } from 'node:timers/promises';
import { awakeNow } from '../../base/awake-clock.js';
import { Backoff } from '../../base/backoff.js';
import { EnvironmentError } from '../environment.js';
import type { MadeSession, MadeSessions } from './made-sessions.js';
import { askMcp } from './mcp-request.js';
import { ErrorFrame, type OpenEnvConnection, type ReplyFrame } from './openenv-connection.js';
import { OpenEnvSocket } from './openenv-socket.js';
import { textOf } from './tool-results.js';
import { isRefused } from './web-socket.js';

interface AttachedServer {
  url: string;
  headers: Readonly<Record<string, string>>;
  headersEnv?: string;
  /** Sessions are noted here while they are open. */
  made: MadeSessions;
}

/** Longer than the server needs to see that a socket is dead: until then it refuses another one (20 s between pings, 20 s for the answer). */
const attachWithinMs = 45_000;

export class AttachedSession implements OpenEnvConnection {
  /** No later process continues it: `state` does not name its world. */
  readonly sessionId = undefined;
  censor = (text: string): string => text;
  #onIdleEnd: (() => void) | undefined;
  /** Steps that were answered since the newest reset. */
  #steps = 0;
  #requests = 0;
  /** Resolves when the server knows that the session is over. */
  #over: Promise<void> | undefined;
  #endedByUs = false;

  private constructor(
    private readonly server: AttachedServer,
    private readonly session: MadeSession,
    private socket: OpenEnvSocket,
  ) {
    this.#listenTo(socket);
  }

  /** Rejects with `EnvironmentError` `unavailable`: `capacity`, or `connect`. */
  static async make(
    server: AttachedServer,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<AttachedSession> {
    const { url, headers, headersEnv, made } = server;
    signal.throwIfAborted();
    // Not ended by the signal: the server might make a session that nobody knows of.
    const answer = await askMcp(server, headers, 'openenv/session/create', {}, timeoutMs).catch(
      (error: unknown) => {
        throw unavailable('connect', `${url} makes no session: ${(error as Error).message}`, error);
      },
    );
    if (!('result' in answer)) {
      const isFull = typeof answer.data.max_sessions === 'number';
      const frame = new ErrorFrame(isFull ? 'CAPACITY_REACHED' : '', answer.message, answer.data);
      throw unavailable(isFull ? 'capacity' : 'connect', `${url}: ${answer.message}`, frame);
    }
    const id = textOf(answer.result.session_id, '');
    const session = { url, id, ...(headersEnv === undefined ? {} : { headers_env: headersEnv }) };
    try {
      await made.add(session);
      const socket = await OpenEnvSocket.connect({ url, headers }, timeoutMs, signal, { attach: id });
      return new AttachedSession(server, session, socket);
    } catch (error) {
      void made.close(session, headers);
      throw error;
    }
  }

  get endedByUs(): boolean {
    return this.#endedByUs;
  }

  get usable(): boolean {
    return this.#over === undefined;
  }

  set onIdleEnd(callback: (() => void) | undefined) {
    this.#onIdleEnd = callback;
  }

  newKey(): string {
    return String(++this.#requests);
  }

  async request(frame: Record<string, unknown>, timeoutMs: number): Promise<ReplyFrame> {
    try {
      const reply = await this.#answered(frame, timeoutMs);
      if (frame.type === 'reset') this.#steps = 0;
      if (frame.type === 'step') this.#steps += 1;
      return reply;
    } catch (error) {
      const isOpen = error instanceof ErrorFrame && this.socket.usable;
      if (!isOpen) void this.#end();
      throw error;
    }
  }

  async #answered(frame: Record<string, unknown>, timeoutMs: number): Promise<ReplyFrame> {
    // Nothing was in flight when this socket was lost.
    if (!this.socket.usable) await this.#attachAgain(timeoutMs, undefined);
    for (;;) {
      try {
        return await this.socket.request(frame, timeoutMs);
      } catch (error) {
        const isLost = error instanceof EnvironmentError && error.reason === 'socket_lost';
        // After a reset in flight the episode has not begun.
        if (!isLost || this.#over || frame.type === 'reset') throw error;
        const { step_count } = await this.#attachAgain(timeoutMs, error);
        // A count of 0 may be that of a server that does not count.
        if (frame.type === 'step' && (step_count !== this.#steps || this.#steps === 0)) throw error;
      }
    }
  }

  /** Attaches another socket; resolves with the session's state. Throws `loss` if the session is gone. */
  async #attachAgain(timeoutMs: number, loss: Error | undefined): Promise<Record<string, unknown>> {
    const { url, headers } = this.server;
    const lost = loss ?? unavailable('socket_lost', `the session on ${url} is lost`);
    const giveUpAt = awakeNow() + attachWithinMs;
    const pauses = new Backoff([50, 2000]);
    while (!this.#over) {
      try {
        const leftMs = Math.max(1, giveUpAt - awakeNow());
        const quiet = new AbortController().signal;
        const socket = await OpenEnvSocket.connect({ url, headers }, leftMs, quiet, {
          attach: this.session.id,
        });
        const { data } = await socket.request({ type: 'state' }, timeoutMs);
        if (this.#over) socket.terminate();
        else this.#listenTo(socket);
        return data;
      } catch (error) {
        // The server has not noticed yet that the former socket is lost, or still carries out its last call.
        const isHeld = error instanceof ErrorFrame && /already/i.test(error.message);
        const isAway = error instanceof EnvironmentError && !isRefused(error.cause);
        if (!(isHeld || isAway) || awakeNow() > giveUpAt) throw lost;
      }
      await sleep(pauses.next());
    }
    throw lost;
  }

  #listenTo(socket: OpenEnvSocket): void {
    this.socket = socket;
    socket.censor = (text) => this.censor(text);
    socket.onIdleEnd = () => {
      // In the pool nobody would attach another socket.
      if (!this.#onIdleEnd) return;
      void this.#end();
      this.#onIdleEnd();
    };
  }

  close(): void {
    void this.closed();
  }

  async closed(): Promise<void> {
    this.#endedByUs ||= this.#over === undefined;
    await Promise.race([this.#end(), sleep(2000, undefined, { ref: false })]);
  }

  terminate(): void {
    this.close();
  }

  leave(): void {
    this.close();
  }

  #end(): Promise<void> {
    if (this.#over) return this.#over;
    // Set first, because the end of the socket is heard.
    this.#over = this.server.made.close(this.session, this.server.headers);
    this.socket.terminate();
    return this.#over;
  }
}

function unavailable(reason: string, message: string, cause?: unknown): EnvironmentError {
  return new EnvironmentError('unavailable', reason, message, { cause });
}
