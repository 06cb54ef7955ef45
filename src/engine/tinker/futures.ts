// Calls of a Tinker server. A training or sampling request is submitted, gets an id at once, and its result is waited for separately.
import { setTimeout as sleep } from 'node:timers/promises';
import { awakeNow } from '../../base/awake-clock.js';
import { type HttpAnswer, type HttpRequest, httpRequest, NoAnswer } from '../../base/http-request.js';
import { Backoff, type BackoffRange } from '../../base/backoff.js';
import {
  failedCall,
  InDoubt,
  isTurnedAway,
  lostCall,
  NotConnected,
  PolicyServerUnavailable,
} from './call-errors.js';
import { RequestWindow } from './request-window.js';

export interface TinkerOptions {
  /** `http://host:port`, without a path. */
  url: string;
  /** Sent as `X-API-Key`. */
  key?: string;
  /** Milliseconds within which a call is answered; each poll for a result is a call of its own. */
  callTimeoutMs?: number;
  /** Milliseconds within which a request is carried out. They start again while the server says that the request waits for something. */
  requestTimeoutMs?: number;
  /** Waits between tries. */
  pause?: (ms: number, signal?: AbortSignal) => Promise<unknown>;
  /** The time in milliseconds, on a clock that never goes back. */
  now?: () => number;
  /** Calls `act` repeatedly until the returned function is called. */
  every?: (ms: number, act: () => void) => () => void;
}

export interface Waiting {
  /** Why the request is not being worked on; absent while the server works on it. */
  reason?: string;
}

export interface WaitOptions {
  signal?: AbortSignal;
  /** Called after each poll without a result, and before each pause. */
  onWaiting?: (waiting: Waiting) => void;
  /** Longest outage, in milliseconds: for so long a server that accepts no connection is tried again. */
  maxWaitMs?: number;
}

export interface RequestOptions extends WaitOptions {
  /** Called each time the request is sent and not turned away: it may be carried out, and is paid for. */
  onSent?: () => void;
  /** If no answer came, the request is sent again: it has a number that the server knows, or doing it twice does no harm. */
  repeatable?: boolean;
}

type Body = object | Uint8Array;
type Json = Record<string, unknown>;

/** Longest poll. Servers answer a poll within 300 s, and proxies in between may cut it off earlier. */
const pollMs = 45_000;
const pauses: BackoffRange = [1_000, 30_000];
const outagePauses: BackoffRange = [200, 10_000];
const defaultMaxWaitMs = 3_600_000;
/** Requests of one kind that went unanswered in a row, before the caller must decide. */
const mostTries = 4;
const mostRedirects = 5;

export class TinkerClient {
  private readonly options: Required<Omit<TinkerOptions, 'key'>> & Pick<TinkerOptions, 'key'>;
  private readonly window = new RequestWindow();

  constructor(options: TinkerOptions) {
    const clock = { pause: sleepFor, now: () => performance.now(), every: callEvery };
    this.options = { callTimeoutMs: 60_000, requestTimeoutMs: 600_000, ...clock, ...options };
  }

  now(): number {
    return this.options.now();
  }

  every(ms: number, act: () => void): () => void {
    return this.options.every(ms, act);
  }

  /** A call that is answered at once; one without a body only reads, and is repeated. Throws the errors of call-errors.ts. */
  async call<T extends object = Json>(path: string, body?: Body, options: WaitOptions = {}): Promise<T> {
    const send = async (): Promise<T> => (await this.answered(path, body, options)) as T;
    return body === undefined ? this.untilAnswered(send, options) : send();
  }

  /** Removes what the path names, if it is there. Its answer is not asked for again. */
  async remove(path: string, signal?: AbortSignal): Promise<void> {
    const { callTimeoutMs } = this.options;
    const { status, value } = await this.fetch(path, undefined, callTimeoutMs, signal, false, 'DELETE');
    if (status >= 300 && status !== 404) throw failedCall(path, status, value);
  }

  /** A file of the server. */
  download(path: string, options: WaitOptions = {}): Promise<Uint8Array> {
    return this.untilAnswered(async () => {
      const { requestTimeoutMs } = this.options;
      const value = await this.answered(path, undefined, options, requestTimeoutMs, true);
      if (value instanceof Uint8Array) return value;
      throw new InDoubt(`${path} is not a file`);
    }, options);
  }

  /** Submits a request and waits for its result: bytes if the server answers in protobuf. */
  async run(path: string, body: Body, options: RequestOptions = {}): Promise<Json | Uint8Array> {
    const send = async (): Promise<Json | Uint8Array> => {
      const { request_id } = await this.submit(path, body, options);
      if (typeof request_id === 'string') return this.wait(request_id, options);
      throw new InDoubt(`${path} was answered without a request id`);
    };
    return this.window.within(
      () => (options.repeatable ? this.untilAnswered(send, options) : send()),
      options.signal,
    );
  }

  private async submit(
    path: string,
    body: Body,
    { onSent, ...options }: RequestOptions,
  ): Promise<{ request_id?: unknown }> {
    options.signal?.throwIfAborted();
    try {
      const answer = await this.call<{ request_id?: unknown }>(path, body, options);
      onSent?.();
      return answer;
    } catch (error) {
      if (!isTurnedAway(error)) onSent?.();
      throw error;
    }
  }

  /** The result of a submitted request: bytes if the server answers in protobuf. */
  async wait(id: string, options: WaitOptions = {}): Promise<Json | Uint8Array> {
    const { onWaiting, maxWaitMs = defaultMaxWaitMs } = options;
    const { requestTimeoutMs } = this.options;
    const backoff = new Backoff(pauses);
    const began = this.now();
    let queuedMs = 0;
    for (;;) {
      const asked = this.now();
      const value = await this.answered('/retrieve_future', { request_id: id }, options, pollMs);
      const reason = queueReason(value);
      if (value !== null && reason === null) return resultOf(value);
      if (reason !== null) queuedMs += this.now() - asked;
      if (queuedMs > maxWaitMs)
        throw new PolicyServerUnavailable(`${reason ?? 'queued'}, for ${Math.round(queuedMs / 1000)} s`);
      if (this.now() - began - queuedMs > requestTimeoutMs)
        throw new InDoubt(`request ${id} was not carried out in ${requestTimeoutMs / 1000} s`);
      onWaiting?.(reason === null ? {} : { reason });
      // A server that holds no poll must not be asked without a pause.
      if (this.now() - asked < pauses[0]) await this.pause(backoff.next(), options);
    }
  }

  /** Waits out a server that is away, or says 429. Null if a poll ended without a result. */
  private async answered(
    path: string,
    body: Body | undefined,
    options: WaitOptions,
    timeoutMs = this.options.callTimeoutMs,
    isFile = false,
  ): Promise<unknown> {
    const { onWaiting, maxWaitMs = defaultMaxWaitMs } = options;
    const [tooMany, outage] = [new Backoff(pauses), new Backoff(outagePauses)];
    let giveUpAt = Infinity;
    const waits = async (reason: string, pauseMs: number): Promise<void> => {
      if (giveUpAt === Infinity) giveUpAt = this.now() + maxWaitMs;
      if (this.now() > giveUpAt)
        throw new PolicyServerUnavailable(`${reason}, for ${Math.round(maxWaitMs / 1000)} s`);
      onWaiting?.({ reason });
      await this.pause(pauseMs, options);
    };
    for (;;) {
      try {
        const { status, value } = await this.fetch(path, body, timeoutMs, options.signal, isFile);
        if (status < 300) {
          if (value === unreadable) throw new InDoubt(`${path} was answered with something other than JSON`);
          if (path !== '/retrieve_future') this.window.taken();
          return value;
        }
        if (status === 408 && path === '/retrieve_future') return queueReason(value) === null ? null : value;
        if (status !== 429) throw failedCall(path, status, value);
        this.window.refused();
        await waits('the server has too many requests (429)', tooMany.next());
      } catch (error) {
        if (!(error instanceof NotConnected)) throw error;
        await waits(error.message, outage.next());
      }
    }
  }

  /** Sends the same request again while its answer is lost. */
  private async untilAnswered<T>(send: () => Promise<T>, options: WaitOptions): Promise<T> {
    const backoff = new Backoff(pauses);
    for (let tries = 1; ; tries++) {
      try {
        return await send();
      } catch (error) {
        if (!(error instanceof InDoubt) || tries === mostTries) throw error;
        options.onWaiting?.({ reason: error.message });
        await this.pause(backoff.next(), options);
      }
    }
  }

  async pause(ms: number, { signal }: WaitOptions): Promise<void> {
    await this.options.pause(ms * (0.5 + Math.random() / 2), signal);
    signal?.throwIfAborted();
  }

  protected async fetch(
    path: string,
    body: Body | undefined,
    timeoutMs: number,
    signal?: AbortSignal,
    isFile = false,
    method = body === undefined ? 'GET' : 'POST',
  ): Promise<{ status: number; value: unknown }> {
    const { url, key } = this.options;
    const binary = body instanceof Uint8Array;
    try {
      const answer = await follow(`${url}/api/v1${path}`, {
        ...{ method, timeoutMs, signal },
        headers: {
          'Content-Type': binary ? 'application/x-protobuf' : 'application/json',
          ...(key === undefined ? {} : { 'X-API-Key': key }),
        },
        ...(body === undefined ? {} : { body: binary ? Buffer.from(body) : JSON.stringify(body) }),
      });
      const type = answer.headers.get('content-type') ?? '';
      const isBinary = type.startsWith('application/x-protobuf') || (isFile && answer.ok);
      return { status: answer.status, value: isBinary ? answer.bytes : parsed(answer) };
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      if (error.reason === 'timeout' && path === '/retrieve_future') return { status: 408, value: null };
      throw lostCall(url, path, error);
    }
  }
}

/** Follows a download's redirects. The headers, which hold the key, go to the server's own origin alone. */
async function follow(url: string, request: HttpRequest): Promise<HttpAnswer> {
  const { timeoutMs, signal } = request;
  const until = awakeNow() + timeoutMs;
  const { origin } = new URL(url);
  let at = new URL(url);
  let answer = await httpRequest(at, { ...request, redirect: 'manual' });
  for (let hops = 0; answer.status >= 300 && answer.status < 400 && hops < mostRedirects; hops++) {
    at = new URL(answer.headers.get('location') ?? '', at);
    const headers = at.origin === origin ? request.headers : {};
    const leftMs = Math.max(1, until - awakeNow());
    answer = await httpRequest(at, { headers, timeoutMs: leftMs, signal, redirect: 'manual' });
  }
  return answer;
}

function sleepFor(ms: number, signal?: AbortSignal): Promise<unknown> {
  return sleep(ms, undefined, signal ? { signal } : {}).catch(() => undefined);
}

function callEvery(ms: number, act: () => void): () => void {
  const timer = setInterval(act, ms).unref();
  return () => clearInterval(timer);
}

/** A body that should be JSON and is not, such as a proxy's page. */
const unreadable = Symbol('unreadable');

function parsed({ ok, text }: HttpAnswer): unknown {
  try {
    return text === '' ? null : JSON.parse(text);
  } catch {
    return ok ? unreadable : { detail: text.slice(0, 300) };
  }
}

/** Why a request is queued; null if the answer is not about a queue. */
function queueReason(value: unknown): string | null {
  const { type, queue_state: state } = (value ?? {}) as { type?: unknown; queue_state?: unknown };
  if (typeof state === 'string') return `the server's queue: ${state}`;
  return type === 'try_again' ? 'the server says: try again' : null;
}

/** The hosted service answers a failed request with status 200 and an `error`. */
function resultOf(value: unknown): Json | Uint8Array {
  if (!(value instanceof Uint8Array) && typeof (value as { error?: unknown }).error === 'string')
    throw failedCall('/retrieve_future', 400, value);
  return value as Json | Uint8Array;
}
