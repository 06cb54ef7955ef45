// A session that outlives its socket, on a stock server of OpenEnv 0.5 or later. It is created and closed over HTTP, and played over a socket
// that is attached to it; after a lost socket another one is attached. The server knows no idempotency keys, so a step without an answer is sent
// again only if `state` shows that it was not carried out. That needs a `step_count` that grows by one with every answered step, also a refused
// one. So the count is compared after each answer; after the first difference no step is sent again.
import { numberIn } from '../../base/json.js';
import { setTimeout as sleep } from 'node:timers/promises';
import { awakeNow, awakeTimeout } from '../../base/awake-clock.js';
import { Backoff } from '../../base/backoff.js';
import type { EnvironmentReason } from '../../spec/records/episode.js';
import { EnvironmentError } from '../environment.js';
import type { KeptSession, SessionNotes } from '../environment-kind.js';
import { askMcp } from './mcp-request.js';
import { ErrorFrame, type OpenEnvConnection, type ReplyFrame } from './openenv-connection.js';
import { OpenEnvSocket } from './openenv-socket.js';
import { textOf } from '../tool-results.js';
import { isRefused } from './web-socket.js';

interface AttachedServer {
  url: string;
  headers: Readonly<Record<string, string>>;
  headersEnv?: string;
  /** Sessions are noted here while they are open. */
  made: SessionNotes;
  /** Removes secrets from the server's texts. */
  censor: (text: string) => string;
}

/** Longer than the server needs to see that a socket is dead: until then it refuses another one (20 s between pings, 20 s for the answer). */
const attachWithinMs = 45_000;
/** If a session is created too late, its id is awaited for so long, to close the session. */
const lateAnswerMs = 600_000;

export class AttachedSession implements OpenEnvConnection {
  /** Undefined: no later process can continue the session, because `state` does not name its world. */
  readonly sessionId = undefined;
  censor: (text: string) => string;
  #onIdleEnd: (() => void) | undefined;
  /** Number of answered steps since the newest reset. */
  #steps = 0;
  /** True while the server's count was the same after each of them. */
  #keepsPace = true;
  /** Resolves when the count was compared after the newest step, or when the step's socket was lost. */
  #compared: Promise<void> = Promise.resolve();
  #requests = 0;
  /** Resolves when the server knows that the session is over. */
  #over: Promise<void> | undefined;
  #endedByUs = false;

  private constructor(
    private readonly server: AttachedServer,
    private readonly session: KeptSession,
    private socket: OpenEnvSocket,
  ) {
    this.censor = server.censor;
    this.#listenTo(socket);
  }

  /** Rejects with `EnvironmentError` `unavailable`: `capacity`, or `connect`; when the signal aborts, with its reason. */
  static async make(
    server: AttachedServer,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<AttachedSession> {
    const { url, headers, made } = server;
    const session = await newSession(server, timeoutMs, signal);
    try {
      const attach = { attach: session.id };
      const socket = await OpenEnvSocket.connect({ url, headers }, timeoutMs, signal, attach);
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
      if (frame.type === 'reset') {
        this.#steps = 0;
        this.#keepsPace = true;
      }
      if (frame.type === 'step') {
        this.#steps += 1;
        this.#compared = this.#compare(timeoutMs);
      }
      return reply;
    } catch (error) {
      const isOpen = error instanceof ErrorFrame && this.socket.usable;
      if (!isOpen) void this.#end();
      else if (frame.type === 'step') this.#compared = this.#compare(timeoutMs);
      throw error;
    }
  }

  /** Compares the counts. Only the next request waits for it, so it costs no time while the model samples. Never rejects. */
  async #compare(timeoutMs: number): Promise<void> {
    try {
      const { data } = await this.socket.request({ type: 'state' }, timeoutMs);
      this.#note(data);
    } catch (error) {
      if (error instanceof ErrorFrame) this.#keepsPace = false;
    }
  }

  /** `state`: the session's state while no step is in flight. */
  #note(state: Record<string, unknown>): void {
    if (state.step_count !== this.#steps) this.#keepsPace = false;
  }

  async #answered(frame: Record<string, unknown>, timeoutMs: number): Promise<ReplyFrame> {
    await this.#compared;
    // No step was in flight when this socket was lost.
    if (!this.socket.usable) this.#note(await this.#attachAgain(timeoutMs, undefined));
    for (;;) {
      try {
        return await this.socket.request(frame, timeoutMs);
      } catch (error) {
        const isLost = error instanceof EnvironmentError && error.reason === 'socket_lost';
        // After a reset in flight the episode has not begun.
        if (!isLost || this.#over || frame.type === 'reset') throw error;
        const { step_count } = await this.#attachAgain(timeoutMs, error);
        // A server that does not count steps may always say 0.
        const isUnseen = this.#keepsPace && step_count === this.#steps && this.#steps > 0;
        if (frame.type === 'step' && !isUnseen) throw error;
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
      let socket: OpenEnvSocket | undefined;
      try {
        const leftMs = Math.max(1, giveUpAt - awakeNow());
        const quiet = new AbortController().signal;
        socket = await OpenEnvSocket.connect({ url, headers }, leftMs, quiet, {
          attach: this.session.id,
        });
        const { data } = await socket.request({ type: 'state' }, timeoutMs);
        if (this.#over) socket.terminate();
        else this.#listenTo(socket);
        return data;
      } catch (error) {
        // The server may have attached this socket, which would then keep others out.
        socket?.terminate();
        // The server has not noticed yet that the earlier socket is lost, or it still carries out that socket's last call.
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
      // A session without a socket must not go back to the pool, where nobody would attach another one.
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
    // Set before the socket ends, because that end is noticed.
    this.#over = this.server.made.close(this.session, this.server.headers);
    this.socket.terminate();
    return this.#over;
  }
}

/** Creates a session and notes it. A session that is created after the time limit or the signal is closed. */
async function newSession(
  server: AttachedServer,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<KeptSession> {
  const { url, headers, made } = server;
  signal.throwIfAborted();
  let isLate = false;
  // Neither the limit nor the signal ends this request: the server might create a session that nobody would close.
  const asked = askForSession(server).then((session) => {
    if (isLate) void made.close(session, headers);
    return session;
  });
  const ended = new AbortController();
  const late = new Promise<never>((_, reject) => {
    const callOff = awakeTimeout(
      () =>
        reject(unavailable('connect', `${url} makes no session within ${Math.round(timeoutMs / 1000)} s`)),
      timeoutMs,
    );
    const abort = (): void => reject(signal.reason as Error);
    signal.addEventListener('abort', abort, { once: true, signal: ended.signal });
    ended.signal.addEventListener('abort', callOff, { once: true });
  });
  try {
    return await Promise.race([asked, late]);
  } catch (error) {
    isLate = true;
    asked.catch(() => undefined);
    throw error;
  } finally {
    ended.abort();
  }
}

async function askForSession({
  url,
  headers,
  headersEnv,
  made,
  censor,
}: AttachedServer): Promise<KeptSession> {
  const answer = await askMcp({ url }, headers, 'openenv/session/create', {}, lateAnswerMs).catch(
    (error: unknown) => {
      const message = censor((error as Error).message);
      throw unavailable('connect', `${url} makes no session: ${message}`, error);
    },
  );
  if (!('result' in answer)) {
    const isFull = numberIn(answer.data.max_sessions) !== null;
    const message = censor(answer.message);
    const frame = new ErrorFrame(isFull ? 'CAPACITY_REACHED' : '', message, answer.data);
    throw unavailable(isFull ? 'capacity' : 'connect', `${url}: ${message}`, frame);
  }
  const id = textOf(answer.result.session_id, '');
  const session = { url, id, ...(headersEnv === undefined ? {} : { headers_env: headersEnv }) };
  await made.add(session).catch((error: unknown) => {
    void made.close(session, headers);
    throw error;
  });
  return session;
}

function unavailable(reason: EnvironmentReason, message: string, cause?: unknown): EnvironmentError {
  return new EnvironmentError('unavailable', reason, message, { cause });
}
