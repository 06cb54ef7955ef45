// Opens WebSockets to the `/ws` of OpenEnv servers.
import { WebSocket } from 'ws';
import { awakeTimeout } from '../../base/awake-clock.js';

/** Same limit as in the Python client; a server's frames may be larger than a client's. */
const maxFrameBytes = 100 * 1024 * 1024;

interface Address {
  url: string;
  /** Without the `?`. */
  query: string;
  headers: Readonly<Record<string, string>>;
}

/**
 * Connects, and resolves with the result of `opened`, which is called before a frame can arrive. `sessionId`: id of the session, if the
 * server keeps it when this socket is lost. Rejects if there is no connection in time, or when the signal aborts.
 */
export function openWebSocket<T>(
  { url, query, headers }: Address,
  opened: (socket: WebSocket, sessionId: string | undefined) => T,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<T> {
  const address = `${url.replace(/^http/, 'ws').replace(/\/+$/, '')}/ws?${query}`;
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(address, {
      headers,
      perMessageDeflate: false,
      maxPayload: maxFrameBytes,
      skipUTF8Validation: true,
    });
    let sessionId: string | undefined;
    const abort = (): void => socket.terminate();
    signal?.addEventListener('abort', abort, { once: true });
    const settled = (): void => {
      callOff();
      signal?.removeEventListener('abort', abort);
    };
    const failed = (error: Error): void => {
      settled();
      reject(error);
    };
    const callOff = awakeTimeout(() => {
      failed(new Error(`no handshake within ${Math.round(timeoutMs)} ms`));
      socket.terminate();
    }, timeoutMs);
    socket.once('error', failed);
    socket.once('upgrade', ({ headers }) => {
      const id = headers['x-session-id'];
      sessionId = typeof id === 'string' && id !== '' ? id : undefined;
    });
    socket.once('open', () => {
      settled();
      socket.off('error', failed);
      resolve(opened(socket, sessionId));
    });
  });
}

/** True if no server listens at the address. */
export function isRefused(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ECONNREFUSED';
}
