// One request to Fleet's control plane or to an instance.

export interface FleetAnswer {
  status: number;
  /** Parsed JSON, or the text if it is not JSON. */
  body: unknown;
}

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
