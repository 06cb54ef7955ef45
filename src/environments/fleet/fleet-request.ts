// Requests to Fleet's control plane.
import { isObject } from '../../base/json.js';
import { randomUUID } from 'node:crypto';
import { withoutKnownSecrets } from '../../base/known-secrets.js';

import { type FleetAnswer, jsonRequest } from './json-request.js';

export type { FleetAnswer };

export interface FleetRequestOptions {
  timeoutMs?: number;
  /** `X-Request-ID`: Fleet carries out one creation for each. Absent: a random one. */
  requestId?: string;
  signal?: AbortSignal;
}

/**
 * Sends one request, once; resolves with an answer of any status. Rejects with `EnvironmentError` `unavailable` (`connect`, `timeout`) if
 * no answer came, or with the signal's reason.
 */
export type FleetRequest = (
  method: 'GET' | 'POST' | 'DELETE',
  path: string,
  body?: object,
  options?: FleetRequestOptions,
) => Promise<FleetAnswer>;

export const fleetUrl = 'https://orchestrator.fleetai.com';

const usualTimeoutMs = 60_000;

export function fleetRequests(url: string, apiKey: string): FleetRequest {
  const base = url.replace(/\/+$/, '');
  return (method, path, body, { timeoutMs = usualTimeoutMs, requestId = randomUUID(), signal } = {}) =>
    jsonRequest({
      method,
      url: `${base}${path}`,
      headers: {
        Authorization: `Bearer ${apiKey}`,
        'X-Request-ID': requestId,
        'X-Request-Timestamp': String(Date.now()),
      },
      ...{ body, timeoutMs, signal },
    });
}

/** Fleet's words for a refusal: `detail`, or its `message`. */
export function detailOf({ status, body }: FleetAnswer): string {
  const detail = isObject(body) ? body.detail : body;
  const words = isObject(detail) ? detail.message : detail;
  const said = typeof words === 'string' && words !== '' ? words : `status ${status}`;
  return withoutKnownSecrets(said).slice(0, 500);
}
