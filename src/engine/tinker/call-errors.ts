// What can come of a call to a Tinker server other than an answer. Each error says what a caller may do next.
import type { NoAnswer } from '../../base/http-request.js';

/** The server no longer has the model: it restarted, or the model expired or was unloaded. */
export class ModelLost extends Error {
  override readonly name = 'ModelLost';
}

/** The request may or may not have been carried out. */
export class InDoubt extends Error {
  override readonly name = 'InDoubt';
}

/** The server refused the request, and would refuse it again. */
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

/** The server has not accepted a connection for as long as the caller may wait. Blocks a run at once. */
export class PolicyServerUnavailable extends Error {
  override readonly name = 'PolicyServerUnavailable';
}

/** The key is missing or wrong, or the account has no credit. Blocks a run at once. */
export class PolicyServerDenied extends Error {
  override readonly name = 'PolicyServerDenied';
}

/** Nothing of the request has reached a server. */
export class NotConnected extends Error {
  override readonly name = 'NotConnected';
}

/** The server has not taken the request: it costs nothing. */
export function isTurnedAway(error: unknown): boolean {
  const kinds = [ModelLost, TinkerRefused, PolicyServerUnavailable, PolicyServerDenied];
  return kinds.some((kind) => error instanceof kind);
}

/** The error for a call without an answer. */
export function lostCall(url: string, path: string, error: NoAnswer): NotConnected | InDoubt {
  return error.wasNotSent
    ? new NotConnected(`no Tinker server answers at ${url} (${error.message})`)
    : new InDoubt(`${path} was not answered: ${error.message}`);
}

/** The error for an answer with `status` 300 or above. */
export function failedCall(path: string, status: number, value: unknown): Error {
  const detail = detailOf(value);
  if (status === 401 || status === 403)
    return new PolicyServerDenied(`the Tinker server does not accept the key: ${status} ${detail}`);
  if (status === 402) return new PolicyServerDenied(`the Tinker server asks for payment: 402 ${detail}`);
  if (/not loaded/i.test(detail) || (status === 404 && /model/i.test(detail))) return new ModelLost(detail);
  const resultIsGone = path === '/retrieve_future' && status === 404;
  if (status >= 500 || status === 408 || status === 410 || resultIsGone)
    return new InDoubt(`${path}: ${status} ${detail}`);
  return new TinkerRefused(status, detail, path);
}

function detailOf(value: unknown): string {
  const { detail, error } = (value ?? {}) as { detail?: unknown; error?: unknown };
  const said = detail ?? error;
  return (typeof said === 'string' ? said : JSON.stringify(said ?? value)).slice(0, 500);
}
