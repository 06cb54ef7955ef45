// Calls of a Tinker server. A request is submitted, answered with an id at once, and waited for apart; what comes of it is a value, or one
// of the errors below, which say what a caller may do next.
import { setTimeout as sleep } from 'node:timers/promises';
import { Backoff, type BackoffRange } from '../../base/backoff.js';

/** The server does not have the model any more: it restarted, or the model expired or was unloaded. */
export class ModelLost extends Error {
  override readonly name = 'ModelLost';
}

/** Nobody can say from here whether the request was carried out. */
export class InDoubt extends Error {
  override readonly name = 'InDoubt';
}

/** The server's own no: the same request would be refused again. */
export class TinkerRefused extends Error {
  override readonly name = 'TinkerRefused';
  constructor(
    readonly status: number,
    readonly detail: string,
    path: string,
  ) {
    super(`the Tinker server refuses ${path}: ${status} ${detail}`);
  }
}

/** Nothing of the request has reached a server. */
class TinkerUnreachable extends Error {
  override readonly name = 'TinkerUnreachable';
}

interface TinkerOptions {
  /** `http://host:port`, without a path. */
  url: string;
  /** Sent as `X-API-Key`. */
  key?: string;
  /** Milliseconds within which a call is answered; a wait is a call after another. */
  callTimeoutMs?: number;
  /** Milliseconds within which a request is carried out, counted from the start again while the server says that it waits for something. */
  requestTimeoutMs?: number;
}

interface Waiting {
  /** Why the server has not begun; absent while it works. */
  reason?: string;
}

export interface WaitOptions {
  signal?: AbortSignal;
  /** Called after each poll without a result. */
  onWaiting?: (waiting: Waiting) => void;
}

type Body = object | Uint8Array;
type Json = Record<string, unknown>;

/** Longest of one poll; servers hold a poll for up to 300 s, and proxies between hold less. */
const pollMs = 45_000;
const pauses: BackoffRange = [1_000, 30_000];

export class TinkerClient {
  private readonly options: Required<Omit<TinkerOptions, 'key'>> & Pick<TinkerOptions, 'key'>;

  constructor(options: TinkerOptions) {
    this.options = { callTimeoutMs: 60_000, requestTimeoutMs: 600_000, ...options };
  }

  /** A call that answers at once. Throws `TinkerRefused`, `ModelLost`, `InDoubt` or `TinkerUnreachable`. */
  async call<T extends object = Json>(path: string, body?: Body, signal?: AbortSignal): Promise<T> {
    const backoff = new Backoff(pauses);
    for (;;) {
      const { status, value } = await this.fetch(path, body, this.options.callTimeoutMs, signal);
      if (status < 300) return value as T;
      if (status !== 429) throw failure(path, status, value);
      await sleep(jittered(backoff.next()), undefined, signal ? { signal } : {});
    }
  }

  /** A file of the server. */
  async download(path: string, signal?: AbortSignal): Promise<Uint8Array> {
    const { status, value } = await this.fetch(path, undefined, this.options.requestTimeoutMs, signal, true);
    if (status < 300 && value instanceof Uint8Array) return value;
    throw failure(path, status, value);
  }

  /** Submits a request and returns its id. */
  async submit(path: string, body: Body, signal?: AbortSignal): Promise<string> {
    const { request_id } = await this.call<{ request_id?: unknown }>(path, body, signal);
    if (typeof request_id === 'string') return request_id;
    throw new InDoubt(`${path} was answered without a request id`);
  }

  /** What a submitted request came to: bytes where the server answers in protobuf. */
  async wait(id: string, { signal, onWaiting }: WaitOptions = {}): Promise<Json | Uint8Array> {
    const backoff = new Backoff(pauses);
    let since = performance.now();
    for (;;) {
      const { status, value } = await this.fetch(
        '/retrieve_future',
        { request_id: id },
        pollMs,
        signal,
      ).catch((error: unknown) => {
        if (error instanceof PollEnded) return { status: 408, value: null };
        throw error;
      });
      if (status < 300 && !isTryAgain(value)) return value as Json | Uint8Array;
      if (status >= 300 && status !== 408 && status !== 429) throw failure('/retrieve_future', status, value);
      const reason = waitingReason(value);
      if (reason !== null) since = performance.now();
      if (performance.now() - since > this.options.requestTimeoutMs)
        throw new InDoubt(`request ${id} was not carried out in ${this.options.requestTimeoutMs / 1000} s`);
      onWaiting?.(reason === null ? {} : { reason });
      if (status === 408) continue;
      await sleep(jittered(backoff.next()), undefined, signal ? { signal } : {});
    }
  }

  /** Submits and waits. */
  async run(path: string, body: Body, options: WaitOptions = {}): Promise<Json | Uint8Array> {
    return this.wait(await this.submit(path, body, options.signal), options);
  }

  private async fetch(
    path: string,
    body: Body | undefined,
    timeoutMs: number,
    signal?: AbortSignal,
    isFile = false,
  ): Promise<{ status: number; value: unknown }> {
    const { url, key } = this.options;
    const binary = body instanceof Uint8Array;
    const deadline = AbortSignal.timeout(timeoutMs);
    try {
      const answer = await fetch(`${url}/api/v1${path}`, {
        method: body === undefined ? 'GET' : 'POST',
        headers: {
          'Content-Type': binary ? 'application/x-protobuf' : 'application/json',
          ...(key === undefined ? {} : { 'X-API-Key': key }),
        },
        ...(body === undefined ? {} : { body: binary ? Buffer.from(body) : JSON.stringify(body) }),
        signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
      });
      const bytes = new Uint8Array(await answer.arrayBuffer());
      const type = answer.headers.get('content-type') ?? '';
      const isBinary = type.startsWith('application/x-protobuf') || (isFile && answer.ok);
      const value = isBinary ? bytes : parsed(bytes);
      return { status: answer.status, value };
    } catch (error) {
      signal?.throwIfAborted();
      const cause = (error as { cause?: { code?: string; message?: string } }).cause;
      if (deadline.aborted && path === '/retrieve_future') throw new PollEnded();
      if (cause?.code === 'ECONNREFUSED' || cause?.code === 'ENOTFOUND')
        throw new TinkerUnreachable(`no Tinker server answers at ${url}: ${cause.message ?? cause.code}`);
      throw new InDoubt(`${path} was not answered: ${cause?.message ?? (error as Error).message}`);
    }
  }
}

/** A poll's own time ran out. */
class PollEnded extends Error {}

function parsed(bytes: Uint8Array): unknown {
  const text = Buffer.from(bytes).toString();
  try {
    return text === '' ? null : JSON.parse(text);
  } catch {
    return { detail: text.slice(0, 300) };
  }
}

function failure(path: string, status: number, value: unknown): Error {
  const detail = detailOf(value);
  if (/not loaded/i.test(detail) || (status === 404 && /model/i.test(detail))) return new ModelLost(detail);
  // A gone result says nothing of the request.
  if (status >= 500 || status === 410) return new InDoubt(`${path}: ${status} ${detail}`);
  return new TinkerRefused(status, detail, path);
}

function detailOf(value: unknown): string {
  const detail =
    (value as { detail?: unknown; error?: unknown } | null)?.detail ?? (value as Json | null)?.['error'];
  return (typeof detail === 'string' ? detail : JSON.stringify(detail ?? value)).slice(0, 500);
}

/** The hosted service's promise that a request is queued still. */
function isTryAgain(value: unknown): boolean {
  return (value as { type?: unknown } | null)?.type === 'try_again';
}

function waitingReason(value: unknown): string | null {
  if (!isTryAgain(value)) return null;
  const state = (value as { queue_state?: unknown }).queue_state;
  return typeof state === 'string' ? state : 'the server says: try again';
}

function jittered(ms: number): number {
  return ms * (0.5 + Math.random() / 2);
}
