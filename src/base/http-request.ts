// One HTTP request, sent once, with its whole answer. The caller decides what a status means, and whether the request is sent again.
import { awakeLimit } from './awake-clock.js';
import { withoutKnownSecrets } from './known-secrets.js';
import { joinSignals } from './abortable.js';

export interface HttpRequest {
  /** Absent: `POST` with a body, `GET` without. */
  method?: string | undefined;
  headers?: RequestInit['headers'] | undefined;
  /** A text is JSON, unless the headers name another type. */
  body?: RequestInit['body'];
  /** Limit for the whole answer, in milliseconds in which this process runs. */
  timeoutMs: number;
  signal?: AbortSignal | undefined;
  /** Absent: `error`, because a redirect could take the headers to another host. */
  redirect?: NonNullable<RequestInit['redirect']>;
  /** Size from which an answer is refused; absent: none. */
  maxBytes?: number;
}

export class HttpAnswer {
  constructor(
    readonly status: number,
    readonly headers: Headers,
    readonly bytes: Uint8Array<ArrayBuffer>,
  ) {}

  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  get text(): string {
    return new TextDecoder().decode(this.bytes);
  }
}

/** No whole answer came. The message says why, without known secrets, as the end of a sentence that names the server. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer';

  constructor(
    readonly reason: 'timeout' | 'connection' | 'size',
    message: string,
    options?: ErrorOptions,
  ) {
    super(withoutKnownSecrets(message), options);
  }

  /** Nothing has reached a server: no connection was made. */
  get wasNotSent(): boolean {
    return beforeConnection.includes((this.cause as { code?: string } | undefined)?.code ?? '');
  }
}

/** Socket and name-lookup errors before a connection was made. */
const beforeConnection = [
  'ECONNREFUSED',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'UND_ERR_CONNECT_TIMEOUT',
];

/** Resolves with an answer of any status. Rejects with `NoAnswer`, or with the signal's reason. */
export async function httpRequest(url: string | URL, request: HttpRequest): Promise<HttpAnswer> {
  const { body, method = body === undefined ? 'GET' : 'POST', timeoutMs, signal, maxBytes } = request;
  const headers = new Headers(request.headers);
  if (typeof body === 'string' && !headers.has('content-type'))
    headers.set('content-type', 'application/json');
  const limit = awakeLimit(timeoutMs);
  const stop = joinSignals([limit.signal, ...(signal ? [signal] : [])]);
  const { redirect = 'error' } = request;
  try {
    const response = await fetch(url, {
      ...{ method, headers, redirect, signal: stop.signal },
      ...(body === undefined ? {} : { body }),
    });
    return new HttpAnswer(response.status, response.headers, await bytesOf(response, maxBytes));
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof NoAnswer) throw error;
    const { cause = error } = error as Error;
    const { message, code } = cause as { message?: string; code?: string };
    const reason = limit.signal.aborted ? 'timeout' : 'connection';
    // An attempt at several addresses fails without words of its own.
    throw new NoAnswer(reason, message || code || (error as Error).message, { cause });
  } finally {
    limit.callOff();
    stop.release();
  }
}

async function bytesOf(response: Response, maxBytes = Infinity): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    size += piece.length;
    if (size > maxBytes) throw new NoAnswer('size', `the answer is larger than ${maxBytes} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}
