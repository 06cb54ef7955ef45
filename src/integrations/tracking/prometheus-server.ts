// Serves a registry to Prometheus as `GET /metrics`, on loopback unless another address is given. It has no log-in and serves no secrets; a
// person who opens it to a network decides who may read a run's figures.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Registry } from 'prom-client';

const requestLimitMs = 10_000;

export interface MetricsAddress {
  host: string;
  /** 0: any free port. */
  port: number;
  /** The option that sets the address, for error messages: `--metrics-address`. */
  flag: string;
}

interface MetricsServer {
  url: string;
  close(): Promise<void>;
}

/** `127.0.0.1:9464`, `:9464`, `9464` or `[::1]:9464`. Throws with `flag` in its message. */
export function parseMetricsAddress(text: string, flag: string): MetricsAddress {
  const match = /^(?:(\[[0-9a-fA-F:.]+\]|[^:[\]]*):)?([0-9]{1,5})$/.exec(text.trim());
  const port = Number(match?.[2] ?? NaN);
  if (!match || !(port <= 65_535)) {
    throw new Error(`${flag} ${text}: give HOST:PORT or PORT, as in 127.0.0.1:9464`);
  }
  const host = (match[1] ?? '').replace(/^\[|\]$/g, '');
  return { host: host === '' ? '127.0.0.1' : host, port, flag };
}

/** If the address cannot be bound, throws one error that says what to change. */
export async function serveMetrics(registry: Registry, address: MetricsAddress): Promise<MetricsServer> {
  const { host, port } = address;
  const server = createServer((request, response) => {
    void answer(registry, request, response);
  });
  server.requestTimeout = requestLimitMs;
  server.headersTimeout = requestLimitMs;
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(refusal(error, address)));
    server.listen(port, host, resolve);
  });
  const { port: taken } = server.address() as AddressInfo;
  // The server must not keep an idle process alive.
  server.unref();
  server.on('error', () => undefined);
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${taken}/metrics`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function refusal(error: NodeJS.ErrnoException, { host, port, flag }: MetricsAddress): Error {
  const why: Partial<Record<string, string>> = {
    EADDRINUSE: 'is in use by another program',
    EADDRNOTAVAIL: 'is not an address of this machine',
    EACCES: 'cannot be opened by this user',
    ENOTFOUND: 'is not known',
  };
  const reason = why[error.code ?? ''] ?? `cannot be opened (${error.message})`;
  return new Error(`${host}:${port} for metrics ${reason}: name another with ${flag} HOST:PORT`, {
    cause: error,
  });
}

async function answer(registry: Registry, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = (request.url ?? '').split('?')[0];
  if (path !== '/metrics') return void response.writeHead(404).end('metrics are at /metrics\n');
  if (request.method !== 'GET' && request.method !== 'HEAD')
    return void response.writeHead(405, { allow: 'GET, HEAD' }).end();
  try {
    const text = await registry.metrics();
    response.writeHead(200, { 'content-type': registry.contentType }).end(text);
  } catch (error) {
    response.writeHead(500).end(`${error instanceof Error ? error.message : String(error)}\n`);
  }
}
