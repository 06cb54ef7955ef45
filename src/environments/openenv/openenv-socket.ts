// The frames of one session of an OpenEnv server. The protocol has no request ids: replies come in order, so only one frame is in flight at
// a time, and only a frame of the type that answers it is its reply; frames of other types are ignored, because servers may send progress and
// notifications. After a late reply, requests and replies would no longer match, so the socket is dropped and never used again. If the server
// keeps the session of a lost socket, another socket continues it, and the frame in flight is sent again with the same idempotency key.
// Otherwise a lost socket ends the session: a new one would have another world.
import { isObject, parseServerJson, writeJson } from '../../base/json.js';
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { RawData, WebSocket } from 'ws';
import { awakeNow, awakeTimeout } from '../../base/awake-clock.js';
import { EnvironmentError } from '../environment.js';
import { ErrorFrame, type OpenEnvConnection, type ReplyFrame } from './openenv-connection.js';
import { errorText, textOf } from '../tool-results.js';
import { isRefused, openWebSocket } from './web-socket.js';

interface Request {
  frame: string;
  /** Type of the frame that answers it, unless an `error` does. */
  answer: string;
  timeoutMs: number;
  resolve: (reply: ReplyFrame) => void;
  reject: (error: Error) => void;
}

/** Close code of a socket that ended without a close frame. If the server sends a close frame, it ends the session too. */
const abnormalClosure = 1006;
/** Shorter than the time for which the server keeps the session of a lost socket. */
const resumeLimitMs = 10_000;
/** A frame that is in flight each time a socket is lost may itself be the cause, so it is sent again at most this often. */
const maxResumptions = 3;
const dropAfterMs = 2000;
const shownCharacters = 100;

export class OpenEnvSocket implements OpenEnvConnection {
  /** Removes secrets from a frame that the server sends. */
  censor = (text: string): string => text;
  private readonly waiting: Request[] = [];
  private inFlight: Request | undefined;
  /** Frames since the newest request that answer nothing. */
  private ignored: { count: number; newest: string } = { count: 0, newest: '' };
  /** Prefix of this object's idempotency keys: one session may have several such objects, and no two requests may have the same key. */
  private readonly keys = randomBytes(6).toString('hex');
  private requests = 0;
  /** Number of resumptions since the last frame arrived. */
  private resumptions = 0;
  /** `waiting`: the socket is lost, and we connect another one. `unconfirmed`: the new socket is connected, but has no answer yet. */
  private resumption: { state: 'waiting' | 'unconfirmed'; loss: Error } | undefined;
  /** Cancels the time-out of the frame in flight. */
  private answered = (): void => undefined;
  private end: Error | undefined;
  private ours = false;
  private onEnd: (() => void) | undefined;

  private constructor(
    private socket: WebSocket,
    private readonly url: string,
    /** Id of a session that survives a lost socket; undefined if the server keeps none. */
    readonly sessionId: string | undefined,
    private readonly headers: Readonly<Record<string, string>>,
  ) {
    this.listenTo(socket);
  }

  /**
   * Connects to a new session, or to one of that id. `resume`: the server keeps it as its extension says; `attach`: it has no extensions.
   * Rejects with `unavailable/connect`, or with the signal's reason when it aborts. If the server refuses the session, the first request
   * fails.
   */
  static async connect(
    { url, headers = {} }: { url: string; headers?: Readonly<Record<string, string>> },
    timeoutMs: number,
    signal?: AbortSignal,
    { resume, attach }: { resume?: string; attach?: string } = {},
  ): Promise<OpenEnvSocket> {
    const named = resume ?? attach;
    // A server without this extension ignores the query, and its handshake contains no session id.
    const query = named === undefined ? 'resumable=true' : `session_id=${encodeURIComponent(named)}`;
    const opened = (socket: WebSocket, sessionId: string | undefined): OpenEnvSocket =>
      new OpenEnvSocket(socket, url, attach === undefined ? (resume ?? sessionId) : undefined, headers);
    try {
      return await openWebSocket({ url, query, headers }, opened, timeoutMs, signal);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      const cause = error as Error;
      const message = `no connection to the environment server ${url}: ${cause.message || String(cause)}`;
      throw new EnvironmentError('unavailable', 'connect', message, { cause });
    }
  }

  /** True if this process ended the connection, which says nothing about the server. */
  get endedByUs(): boolean {
    return this.ours;
  }

  /** True while a request may be sent. */
  get usable(): boolean {
    return this.end === undefined;
  }

  /** Called when the socket ends while nothing is in flight. */
  set onIdleEnd(callback: (() => void) | undefined) {
    this.onEnd = callback;
  }

  /** An idempotency key that no other request of the session has. */
  newKey(): string {
    return `${this.keys}-${++this.requests}`;
  }

  request(frame: Record<string, unknown>, timeoutMs: number, key = this.newKey()): Promise<ReplyFrame> {
    if (this.end) return Promise.reject(this.end);
    return new Promise((resolve, reject) => {
      const sent = this.sessionId === undefined ? frame : withKey(frame, key);
      const type = textOf(frame.type, '');
      const answer = answerTypes.get(type) ?? type;
      this.waiting.push({ frame: writeJson(sent), answer, timeoutMs, resolve, reject });
      if (!this.inFlight) this.sendNext();
    });
  }

  /** Sends `close`, which has no reply, and waits for the server to close; drops the socket if the server does not. */
  close(): void {
    void this.closed();
  }

  /** Same as `close`; resolves when the socket is closed, after at most 2 s. */
  async closed(): Promise<void> {
    if (this.end) return;
    const aligned = !this.inFlight;
    this.ours = true;
    this.fail(this.lost('was closed on this side'));
    if (this.resumption?.state === 'waiting') return;
    if (aligned) this.socket.send('{"type":"close"}');
    else this.drop();
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => {
        this.socket.terminate();
        resolve();
      }, dropAfterMs);
      this.socket.once('close', () => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  terminate(): void {
    this.ours ||= this.end === undefined;
    this.fail(this.lost('was dropped on this side'));
    this.drop();
  }

  /** Drops the socket, but sends no close frame: a session that the server keeps stays for its owner. */
  leave(): void {
    this.ours ||= this.end === undefined;
    this.fail(this.lost('was dropped on this side'));
    this.socket.terminate();
  }

  /** Sends a close frame: without one, the server would keep the session and its place for a client that does not return. */
  private drop(): void {
    const { socket } = this;
    if (this.sessionId === undefined) return socket.terminate();
    socket.close(1000);
    const timer = setTimeout(() => socket.terminate(), dropAfterMs);
    timer.unref();
    socket.once('close', () => clearTimeout(timer));
  }

  private listenTo(socket: WebSocket): void {
    this.socket = socket;
    socket.on('message', (data) => socket === this.socket && this.receive(data));
    socket.on('error', (error) => this.fail(this.lost(`broke: ${error.message}`)));
    socket.on('close', (code) => {
      const loss = this.lost(`closed it (code ${code})`);
      if (this.mayResume(code)) void this.resume(loss);
      else this.fail(this.resumption?.loss ?? loss);
    });
  }

  private mayResume(code: number): boolean {
    if (this.end || this.sessionId === undefined || code !== abnormalClosure) return false;
    // An idle socket in the pool has no episode to continue.
    return this.onEnd === undefined && this.resumptions < maxResumptions;
  }

  /** Attaches another socket to the session; if that is impossible, fails with the error of the lost socket. */
  private async resume(loss: Error): Promise<void> {
    this.resumption = { state: 'waiting', loss };
    this.resumptions++;
    this.answered();
    const giveUpAt = awakeNow() + resumeLimitMs;
    const { url, headers } = this;
    // `take_over`, because the server may not have noticed yet that the old socket is lost.
    const query = `session_id=${encodeURIComponent(this.sessionId ?? '')}&take_over=true`;
    for (let pauseMs = 50; !this.end; pauseMs = Math.min(1000, 2 * pauseMs)) {
      try {
        const leftMs = Math.max(1, giveUpAt - awakeNow());
        return await openWebSocket({ url, headers, query }, (socket) => this.goOn(socket, loss), leftMs);
      } catch (error) {
        // Sessions are in the memory of the server's process: if it refuses connections, they are gone.
        if (isRefused(error) || awakeNow() + pauseMs > giveUpAt) return this.fail(loss);
      }
      await delay(pauseMs);
    }
  }

  private goOn(socket: WebSocket, loss: Error): void {
    this.listenTo(socket);
    if (this.end) return this.drop();
    this.resumption = { state: 'unconfirmed', loss };
    if (this.inFlight) this.transmit(this.inFlight);
  }

  private sendNext(): void {
    const request = this.waiting.shift();
    this.inFlight = request;
    if (request && this.resumption?.state !== 'waiting') this.transmit(request);
  }

  private transmit(request: Request): void {
    this.ignored = { count: 0, newest: '' };
    this.answered = awakeTimeout(() => {
      const { count, newest } = this.ignored;
      const message =
        `the environment server ${this.url} did not answer within ${request.timeoutMs} ms` +
        (count === 0
          ? ''
          : `: it sent ${count} ${count === 1 ? 'frame' : 'frames'} that ${count === 1 ? 'is' : 'are'} no ${request.answer} frame, last ${newest}`);
      this.fail(new EnvironmentError('unavailable', 'timeout', message));
      this.drop();
    }, request.timeoutMs);
    this.socket.send(request.frame);
  }

  private receive(data: RawData): void {
    if (this.end) return;
    const text = this.censor((data as Buffer).toString('utf8'));
    const request = this.inFlight;
    const reply = readReply(text, request?.answer);
    if (reply === null) {
      this.ignored = { count: this.ignored.count + 1, newest: shortened(text) };
      return;
    }
    if (reply instanceof Error) {
      this.fail(new EnvironmentError('unavailable', 'socket_lost', `${this.url}: ${reply.message}`));
      this.drop();
      return;
    }
    if (this.resumption && reply.type === 'error' && reply.data.code === 'SESSION_ERROR') {
      // The server has restarted, or has given the session's place away: the episode ended with the old socket.
      this.fail(this.resumption.loss);
      this.socket.close();
      return;
    }
    this.resumption = undefined;
    this.resumptions = 0;
    if (!request) {
      // A full server refuses with an error frame that answers no request. After a second observation it is not known which one was the answer.
      this.fail(
        reply.type === 'error'
          ? errorFrame(reply)
          : this.lost('sent an observation that nobody asked for, so which one answers a call is not known'),
      );
      this.socket.close();
      return;
    }
    this.answered();
    this.inFlight = undefined;
    if (reply.type === 'error') {
      const error = errorFrame(reply);
      // After these errors the server closes the socket, so nothing more may be sent.
      if (closingCodes.has(error.code)) this.fail(error);
      request.reject(error);
    } else request.resolve(reply);
    if (!this.end) this.sendNext();
  }

  private fail(error: Error): void {
    if (this.end) return;
    this.end = error;
    this.answered();
    const requests = this.inFlight ? [this.inFlight, ...this.waiting] : this.waiting;
    this.inFlight = undefined;
    for (const request of requests) request.reject(error);
    if (requests.length === 0) this.onEnd?.();
  }

  private lost(how: string): EnvironmentError {
    return new EnvironmentError(
      'unavailable',
      'socket_lost',
      `the socket to the environment server ${this.url} is lost: ${how.startsWith('was') ? 'it' : 'the server'} ${how}`,
    );
  }
}

/** The frame with its idempotency key where the example server reads it. */
function withKey(frame: Record<string, unknown>, key: string): Record<string, unknown> {
  // A `state` frame has no data, and changes nothing.
  if (frame.type === 'state') return frame;
  const data = isObject(frame.data) ? frame.data : {};
  if (frame.type !== 'step') return { ...frame, data: { ...data, idempotency_key: key } };
  const metadata = isObject(data.metadata) ? data.metadata : {};
  return { ...frame, data: { ...data, metadata: { ...metadata, idempotency_key: key } } };
}

const closingCodes = new Set(['CAPACITY_REACHED', 'FACTORY_ERROR', 'SESSION_ERROR']);

/** Type of the frame that answers each type of request; a missing request is answered by a frame of its own type. */
const answerTypes = new Map([
  ['reset', 'observation'],
  ['step', 'observation'],
]);

/**
 * The frame as a reply; null if it answers nothing. `expected`: type of the frame that answers the request in flight; undefined if there is
 * none. Then an observation or the end of the session is returned too, because both change what the next reply means.
 */
function readReply(text: string, expected: string | undefined): ReplyFrame | Error | null {
  // Every reply is an object.
  if (!text.trimStart().startsWith('{')) return null;
  let frame: unknown;
  try {
    frame = parseServerJson(text);
  } catch {
    return new Error(`the server sent a frame that is not JSON: ${shortened(text)}`);
  }
  const { type, data, ...beside } = frame as Record<string, unknown>;
  if (type === 'error') {
    const said = isObject(data) ? data : { ...beside, message: errorText(data) ?? errorText(beside) };
    return expected !== undefined || closingCodes.has(textOf(said.code, '')) ? { type, data: said } : null;
  }
  if (typeof type !== 'string' || type !== (expected ?? 'observation')) return null;
  return isObject(data) ? { type, data } : new Error(`the server sent a frame ${type} without data`);
}

function shortened(text: string): string {
  return text.length <= shownCharacters ? text : `${text.slice(0, shownCharacters)} …`;
}

function errorFrame({ data }: ReplyFrame): ErrorFrame {
  const problems = Array.isArray(data.errors) ? ` ${writeJson(data.errors).slice(0, 500)}` : '';
  return new ErrorFrame(
    textOf(data.code, ''),
    `${errorText(data.message) ?? errorText(data.error) ?? 'no message'}${problems}`,
    data,
  );
}
