// One HTTP request with a JSON answer, sent once.
import { writeJson } from '../../base/json.js';
import { httpRequest, NoAnswer } from '../../base/http-request.js';
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
  try {
    const answer = await httpRequest(url, {
      ...{ method, headers, timeoutMs, signal },
      ...(body === undefined ? {} : { body: writeJson(body) }),
    });
    return { status: answer.status, body: parsed(answer.text) };
  } catch (error) {
    if (!(error instanceof NoAnswer)) throw error;
    const asked = `${method} ${url}`;
    const message = withoutKnownSecrets(
      error.reason === 'timeout'
        ? `${asked} has no answer within ${timeoutMs / 1000} s`
        : `${asked}: ${error.message}`,
    );
    const reason = error.reason === 'timeout' ? 'timeout' : 'connect';
    throw new EnvironmentError('unavailable', reason, message, { cause: error });
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
