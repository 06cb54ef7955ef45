// One HTTP request with a JSON answer, sent once.
import { writeJson } from '../../base/json.js';
import { awakeLimit } from '../../base/awake-clock.js';
import { withoutKnownSecrets } from '../../base/known-secrets.js';
import { EnvironmentError } from '../environment.js';

export interface FleetAnswer {
  status: number;
  /** Parsed JSON, or the text if it is not JSON. */
  body: unknown;
}

interface JsonRequest {
  method: 'GET' | 'POST' | 'DELETE';
  url: string;
  headers: Readonly<Record<string, string>>;
  body?: object | undefined;
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

/** Rejects with `EnvironmentError` `unavailable` (`connect`, `timeout`) if no whole answer came, or with the signal's reason. */
export async function jsonRequest(request: JsonRequest): Promise<FleetAnswer> {
  const { method, url, headers, body, timeoutMs, signal } = request;
  const limit = awakeLimit(timeoutMs);
  const stop = signal ? AbortSignal.any([signal, limit.signal]) : limit.signal;
  try {
    const response = await fetch(url, {
      method,
      headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: writeJson(body) }),
      signal: stop,
      redirect: 'error',
    });
    return { status: response.status, body: parsed(await response.text()) };
  } catch (error) {
    signal?.throwIfAborted();
    if (limit.signal.aborted)
      throw unanswered('timeout', `${method} ${url} has no answer within ${timeoutMs / 1000} s`, error);
    const { cause = error } = error as Error;
    throw unanswered('connect', `${method} ${url}: ${(cause as Error).message}`, error);
  } finally {
    limit.callOff();
  }
}

function unanswered(reason: 'connect' | 'timeout', message: string, cause: unknown): EnvironmentError {
  return new EnvironmentError('unavailable', reason, withoutKnownSecrets(message), { cause });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
