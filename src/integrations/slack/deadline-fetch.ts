// `fetch` for Slack's client: one deadline covers the answer and its body, which the client's own time-out does not guarantee. It aborts
// when the process must stop.
import type { FetchFunction } from '@slack/web-api';

/** Larger than any page of messages; cuts off an endless answer, as the deadline also does. */
const largestAnswerBytes = 32 * 1024 * 1024;

/** Rejects with a `TimeoutError` after `deadlineMs`, or with the reason of `stop` when that aborts. */
export function deadlineFetch(deadlineMs: number, stop: AbortSignal): FetchFunction {
  return async (url, init = {}) => {
    stop.throwIfAborted();
    const { signal: _own, ...request } = init;
    const ending = new AbortController();
    const timer = setTimeout(
      () => ending.abort(new DOMException(`no answer within ${deadlineMs / 1000} s`, 'TimeoutError')),
      deadlineMs,
    );
    const end = (): void => ending.abort(stop.reason);
    stop.addEventListener('abort', end, { once: true });
    try {
      const response = await fetch(url, { ...request, signal: ending.signal });
      const body = await bodyOf(response);
      // A response with one of these statuses must not have a body.
      const empty = [204, 205, 304].includes(response.status);
      const { status, statusText, headers } = response;
      return new Response(empty ? null : body, { status, statusText, headers });
    } finally {
      clearTimeout(timer);
      stop.removeEventListener('abort', end);
    }
  };
}

async function bodyOf(response: Response): Promise<Buffer<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of response.body ?? []) {
    const bytes = piece as Uint8Array;
    size += bytes.length;
    if (size > largestAnswerBytes) throw new Error(`the answer is larger than ${largestAnswerBytes} bytes`);
    pieces.push(bytes);
  }
  return Buffer.concat(pieces);
}
