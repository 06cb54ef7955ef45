// The example server: OpenEnv 0.10 over HTTP and WebSocket, with many sessions in one process. It has no log-in, so it listens
// on loopback by default, and refuses cross-origin requests of browsers.
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { WebSocketServer, type WebSocket } from 'ws';
import type { FaultSource, ServedApp, TaskLists } from './app-session.js';
import { createCatalog } from './catalog.js';
import { createEpisodeProtocol } from './episode-protocol.js';
import { answerHttp, maxBodyBytes } from './http-routes.js';
import { createSessionTable, sweepMs } from './sessions.js';
import { serveFrames, serveRpc, type SocketContext, type WantedSession } from './socket-session.js';

export interface EnvironmentServerOptions {
  /** Must be loopback unless `allowRemote`. */
  host?: string;
  allowRemote?: boolean;
  /** 0: any free port. */
  port: number;
  apps: readonly ServedApp[];
  /** Task lists of environments that are no single app. */
  listsOf?: (name: string) => TaskLists | undefined;
  faults: FaultSource;
  /** A client that sends this token may grade and set fault rates. Never displayed. */
  gradingToken: string;
  maxSessions?: number;
  /** A session that is unused for this long ends. */
  sessionTimeoutMs?: number;
  /** How long a resumable session waits for its client after its socket is lost. */
  resumeTimeoutMs?: number;
  /** Share (0..1) of resets, calls and grades that fail, and of calls in which the model sees an error. */
  faultRate?: number;
  toolErrorRate?: number;
  /** Maximum length of a tool result's text, in UTF-16 units. */
  maxOutputChars?: number;
  log?: (line: Record<string, unknown>) => void;
}

interface EnvironmentServerStats {
  sessions: number;
  requests: number;
  faults: Record<string, number>;
  defects: number;
}

export interface EnvironmentServer {
  url: string;
  stats(): EnvironmentServerStats;
  /** Ends every session and socket. */
  close(): Promise<void>;
}

const pingIntervalMs = 20_000;

/** Starts listening. Rejects if the port is in use, or if the host is not loopback and not allowed. */
export async function createEnvironmentServer(options: EnvironmentServerOptions): Promise<EnvironmentServer> {
  const host = options.host ?? '127.0.0.1';
  if (!isLoopback(host) && !options.allowRemote) {
    throw new Error(
      `${host} is not a loopback address, and the server has no log-in: allow remote use with --allow-remote`,
    );
  }
  for (const [name, rate] of Object.entries({
    faultRate: options.faultRate,
    toolErrorRate: options.toolErrorRate,
  })) {
    if (rate !== undefined && !(rate >= 0 && rate <= 1))
      throw new Error(`${name} is ${rate}; it must be 0..1`);
  }
  const log = options.log ?? (() => undefined);
  const sessionTimeoutMs = options.sessionTimeoutMs ?? 30 * 60_000;
  const catalog = createCatalog(options.apps, options.listsOf);
  const limits = {
    maxSessions: options.maxSessions ?? 1024,
    sessionTimeoutMs,
    resumeTimeoutMs: options.resumeTimeoutMs ?? 30_000,
  };
  const sessions = createSessionTable(limits);
  const counts = { requests: 0, defects: 0, faults: {} as Record<string, number> };
  const protocol = createEpisodeProtocol({
    catalog,
    faults: options.faults,
    gradingToken: options.gradingToken,
    faultRate: options.faultRate ?? 0,
    toolErrorRate: options.toolErrorRate ?? 0,
    maxOutputChars: options.maxOutputChars ?? 100_000,
    onFault: (kind) => (counts.faults[kind] = (counts.faults[kind] ?? 0) + 1),
  });
  const context: SocketContext = {
    catalog,
    sessions,
    protocol,
    sessionTimeoutMs,
    onRequest: () => counts.requests++,
    onDefect(error) {
      counts.defects++;
      log({ event: 'request_failed', message: error instanceof Error ? error.message : String(error) });
    },
  };

  const server = createServer((request, response) => {
    if (!originAllowed(request, options.allowRemote)) {
      response.writeHead(403, { 'content-type': 'application/json' });
      response.end('{"detail":"cross-origin requests are refused"}');
      return;
    }
    void answerHttp(context, request, response);
  });
  const webSockets = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    maxPayload: maxBodyBytes,
  });
  const alive = new WeakMap<WebSocket, boolean>();
  const wantedBy = new WeakMap<IncomingMessage, WantedSession>();
  // The handshake's headers contain the session id if the client may return to the session.
  webSockets.on('headers', (headers, request) => {
    const wanted = wantedBy.get(request);
    if (wanted?.kind === 'resumable') headers.push(`X-Session-Id: ${wanted.id}`);
  });
  server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
    socket.on('error', () => undefined);
    const url = new URL(request.url ?? '/', 'http://localhost');
    const refusal = !originAllowed(request, options.allowRemote)
      ? '403 Forbidden'
      : url.pathname === '/ws' || url.pathname === '/mcp'
        ? undefined
        : '404 Not Found';
    if (refusal) {
      socket.end(`HTTP/1.1 ${refusal}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
      return;
    }
    const wanted = url.pathname === '/ws' ? wantedSession(url.searchParams) : ({ kind: 'socket' } as const);
    wantedBy.set(request, wanted);
    webSockets.handleUpgrade(request, socket, head, (webSocket) => {
      socket.setNoDelay(true);
      alive.set(webSocket, true);
      webSocket.on('pong', () => alive.set(webSocket, true));
      if (url.pathname === '/ws') serveFrames(context, webSocket, wanted);
      else serveRpc(context, webSocket);
    });
  });

  await listen(server, options.port, host);
  server.on('error', (error) => log({ event: 'server_error', message: error.message }));
  const pinging = setInterval(() => {
    for (const socket of webSockets.clients) {
      // A client that vanished without closing would occupy its place for ever.
      if (!alive.get(socket)) socket.terminate();
      else {
        alive.set(socket, false);
        socket.ping();
      }
    }
  }, pingIntervalMs);
  const expiring = setInterval(() => sessions.expire(performance.now()), sweepMs(limits));

  const { port } = server.address() as AddressInfo;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    stats: () => ({ ...counts, faults: { ...counts.faults }, sessions: sessions.size }),
    async close() {
      clearInterval(pinging);
      clearInterval(expiring);
      for (const socket of webSockets.clients) socket.terminate();
      sessions.endAll();
      webSockets.close();
      server.closeAllConnections();
      if (server.listening) await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

function wantedSession(query: URLSearchParams): WantedSession {
  const id = query.get('session_id');
  if (id) return { kind: 'attach', id, takeOver: query.get('take_over') === 'true' };
  return query.get('resumable') === 'true' ? { kind: 'resumable', id: randomUUID() } : { kind: 'socket' };
}

function listen(server: ReturnType<typeof createServer>, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const taken = error.code === 'EADDRINUSE';
      const message = `port ${port} of ${host} is taken by another process; choose another with --port, or 0 for any`;
      reject(taken ? new Error(message, { cause: error }) : error);
    });
    server.listen(port, host, 4096, () => {
      server.removeAllListeners('error');
      resolve();
    });
  });
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\./.test(host);
}

/** Programs send no Origin header. A web page of another site does, and must not control a server on its visitor's machine. */
function originAllowed(request: IncomingMessage, allowRemote: boolean | undefined): boolean {
  const { origin } = request.headers;
  if (origin === undefined || allowRemote) return true;
  try {
    return isLoopback(new URL(origin).hostname.replace(/^\[|\]$/g, ''));
  } catch {
    return false;
  }
}
