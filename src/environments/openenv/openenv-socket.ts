// One WebSocket to an OpenEnv server. The protocol has no request ids: replies come in order, so one frame is in flight
// at a time, and a reply that does not come in time leaves the stream unaligned: the socket is dropped, never reused.
import { WebSocket, type RawData } from 'ws';
import { EnvironmentError } from '../environment.js';
import { textOf } from './tool-results.js';

/** An `error` frame, for the caller to judge. */
export class ErrorFrame extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly data: Record<string, unknown>,
  ) {
    super(message);
    this.name = 'ErrorFrame';
  }
}

export interface ReplyFrame {
  type: string;
  data: Record<string, unknown>;
}

interface Request {
  frame: string;
  timeoutMs: number;
  resolve: (reply: ReplyFrame) => void;
  reject: (error: Error) => void;
}

/** As the Python client has it; a server's frames are bigger than a client's may be. */
const maxFrameBytes = 100 * 1024 * 1024;

export class OpenEnvSocket {
  private readonly waiting: Request[] = [];
  private inFlight: Request | undefined;
  private timer: NodeJS.Timeout | undefined;
  private end: Error | undefined;
  private ours = false;
  private onEnd: (() => void) | undefined;

  private constructor(
    private readonly socket: WebSocket,
    private readonly url: string,
  ) {
    socket.on('message', (data) => this.receive(data));
    socket.on('close', (code) => this.fail(this.lost(`closed it (code ${code})`)));
    socket.on('error', (error) => this.fail(this.lost(`broke: ${error.message}`)));
  }

  /** Rejects with `unavailable/connect`, or with the signal's reason when aborted. */
  static connect(url: string, timeoutMs: number, signal?: AbortSignal): Promise<OpenEnvSocket> {
    const address = `${url.replace(/^http/, 'ws').replace(/\/+$/, '')}/ws`;
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(address, {
        perMessageDeflate: false,
        maxPayload: maxFrameBytes,
        handshakeTimeout: timeoutMs,
        skipUTF8Validation: true,
      });
      const abort = (): void => socket.terminate();
      signal?.addEventListener('abort', abort, { once: true });
      const failed = (error: Error): void => {
        signal?.removeEventListener('abort', abort);
        if (signal?.aborted) return reject(signal.reason as Error);
        const message = `no connection to the environment server ${url}: ${error.message || String(error)}`;
        reject(new EnvironmentError('unavailable', 'connect', message, { cause: error }));
      };
      socket.once('error', failed);
      socket.once('open', () => {
        signal?.removeEventListener('abort', abort);
        socket.off('error', failed);
        resolve(new OpenEnvSocket(socket, url));
      });
    });
  }

  /** True when the end was our doing, and says nothing about the server. */
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

  /**
   * Sends a frame and resolves with its reply. Rejects with `ErrorFrame`, or with `EnvironmentError` `socket_lost` or
   * `timeout` when the stream is over.
   */
  request(frame: Record<string, unknown>, timeoutMs: number): Promise<ReplyFrame> {
    if (this.end) return Promise.reject(this.end);
    return new Promise((resolve, reject) => {
      this.waiting.push({ frame: JSON.stringify(frame), timeoutMs, resolve, reject });
      if (!this.inFlight) this.sendNext();
    });
  }

  /** Says `close`, which has no reply, and lets the server close; drops the socket when it does not. */
  close(): void {
    void this.closed();
  }

  /** The same; resolves when the socket is closed, in 2 s at most. */
  async closed(): Promise<void> {
    if (this.end) return;
    const aligned = !this.inFlight;
    this.ours = true;
    this.fail(this.lost('was closed by us'));
    if (aligned) this.socket.send('{"type":"close"}');
    else this.socket.terminate();
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => {
        this.socket.terminate();
        resolve();
      }, 2000);
      this.socket.once('close', () => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  terminate(): void {
    this.ours ||= this.end === undefined;
    this.fail(this.lost('was dropped by us'));
    this.socket.terminate();
  }

  private sendNext(): void {
    const request = this.waiting.shift();
    this.inFlight = request;
    if (!request) return;
    this.timer = setTimeout(() => {
      const message = `the environment server ${this.url} did not answer within ${request.timeoutMs} ms`;
      this.fail(new EnvironmentError('unavailable', 'timeout', message));
      this.socket.terminate();
    }, request.timeoutMs);
    this.socket.send(request.frame);
  }

  private receive(data: RawData): void {
    if (this.end) return;
    const reply = readFrame(data);
    if (reply instanceof Error) {
      this.fail(new EnvironmentError('unavailable', 'socket_lost', `${this.url}: ${reply.message}`));
      this.socket.terminate();
      return;
    }
    const request = this.inFlight;
    if (!request) {
      // Capacity is refused in an unasked first frame; whatever comes unasked, the stream is not aligned after it.
      this.fail(
        reply.type === 'error' ? errorFrame(reply) : this.lost(`sent an unasked ${reply.type} frame`),
      );
      this.socket.close();
      return;
    }
    clearTimeout(this.timer);
    this.inFlight = undefined;
    if (reply.type === 'error') {
      const error = errorFrame(reply);
      // After these the server closes: nothing more may be sent.
      if (closingCodes.has(error.code)) this.fail(error);
      request.reject(error);
    } else request.resolve(reply);
    if (!this.end) this.sendNext();
  }

  private fail(error: Error): void {
    if (this.end) return;
    this.end = error;
    clearTimeout(this.timer);
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

const closingCodes = new Set(['CAPACITY_REACHED', 'FACTORY_ERROR', 'SESSION_ERROR']);

function readFrame(data: RawData): ReplyFrame | Error {
  let frame: unknown;
  try {
    frame = JSON.parse((data as Buffer).toString('utf8'));
  } catch {
    return new Error('the server sent a frame that is not JSON');
  }
  if (typeof frame !== 'object' || frame === null)
    return new Error('the server sent a frame that is no object');
  const { type, data: payload } = frame as Record<string, unknown>;
  if (typeof type !== 'string' || typeof payload !== 'object' || payload === null) {
    return new Error('the server sent a frame without type and data');
  }
  return { type, data: payload as Record<string, unknown> };
}

function errorFrame({ data }: ReplyFrame): ErrorFrame {
  const problems = Array.isArray(data.errors) ? ` ${JSON.stringify(data.errors).slice(0, 500)}` : '';
  return new ErrorFrame(textOf(data.code, ''), `${textOf(data.message, 'no message')}${problems}`, data);
}
