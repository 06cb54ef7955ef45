// What an S3 error means for a request: whether its result is known, and whether to try again.
import { StoreUnfit } from '../record-errors.js';

export type S3Answer<T> =
  | { kind: 'ok'; value: T }
  /** 404: no such object (or upload). */
  | { kind: 'missing'; reason: string }
  /** 412: the key is taken. */
  | { kind: 'taken'; reason: string }
  /** 409, 5xx, throttling, time-out, lost connection: the result is unknown. */
  | { kind: 'unsettled'; reason: string }
  /** No retry can fix it. */
  | { kind: 'refused'; error: Error };

interface SdkError {
  name?: string;
  message?: string;
  code?: string;
  $metadata?: { httpStatusCode?: number };
}

/** Errors that both a wrong address and a service that is down for a moment cause. */
const nobodyThere = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EHOSTUNREACH', 'ENETUNREACH']);
const whatToCheck = 'check that the service is up, and "endpoint=" and "region=" in the store address';

export function answerOf(thrown: unknown, address: string): S3Answer<never> {
  const error = (thrown ?? {}) as SdkError;
  const status = error.$metadata?.httpStatusCode;
  const reason = [status, error.name, error.message ?? error.code]
    .filter((part) => part !== undefined)
    .join(' ');
  if (error.name === 'NoSuchBucket') {
    return refused(`${address}: there is no such bucket; create it or correct the address`, thrown);
  }
  if (thrown instanceof StoreUnfit) return refused(`${address}: ${thrown.message}`, thrown);
  if (error.name === 'AbortError') return { kind: 'refused', error: thrown as Error };
  if (error.name === 'CredentialsProviderError') {
    return refused(
      `${address}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (${reason})`,
      thrown,
    );
  }
  const redirected = status !== undefined && status >= 300 && status < 400;
  if (redirected || error.name === 'AuthorizationHeaderMalformed') {
    return refused(
      `${address}: the bucket is in another region or at another endpoint; correct "region=" or "endpoint=" in the ` +
        `address, or AWS_REGION if the address names no region (${reason})`,
      thrown,
    );
  }
  if (status === 412) return { kind: 'taken', reason };
  if (status === 404) return { kind: 'missing', reason };
  // This 403 passes once the machine's clock is set right.
  if (error.name === 'RequestTimeTooSkewed') return { kind: 'unsettled', reason };
  if (status === 401 || status === 403) {
    // An expired token gives a 403, too; the reason in brackets shows which problem it is.
    return refused(
      `${address}: access was refused; check the credentials and the bucket's policy (${reason})`,
      thrown,
    );
  }
  // An error with a status below 300 means that the reply was cut off.
  const passing =
    status === undefined || status >= 500 || [408, 409, 425, 429].includes(status) || status < 300;
  if (passing || error.name === 'RequestTimeout' || error.name === 'SlowDown') {
    return {
      kind: 'unsettled',
      reason: nobodyThere.has(error.code ?? '') ? `${reason}; ${whatToCheck}` : reason,
    };
  }
  return refused(`${address} refused a request (${reason})`, thrown);
}

function refused(message: string, cause: unknown): S3Answer<never> {
  return { kind: 'refused', error: new StoreUnfit(message, { cause }) };
}
