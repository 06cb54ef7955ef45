// What stands before a Temporal server that is not on one's own machine: TLS, client certificates, API keys. The dev server has none
// of it, so this ends TLS and passes each call on, over HTTP/2 as it came.
import { readFileSync } from 'node:fs';
import * as http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import type { Certificate } from './certificates.js';

export interface GatewayOptions {
  /** `host:port` of the server behind it. */
  target: string;
  certificate: Certificate;
  /** Path of the authority whose clients may connect; absent: no client certificate is asked for. */
  clientAuthority?: string;
  /** Calls without it are answered with UNAUTHENTICATED, and `refusal` as reason. */
  apiKey?: string;
  /** Told the `authorization` header that came. */
  refusal?: (authorization: string) => string;
}

export interface TemporalGateway {
  address: string;
  /** Calls that were passed on. */
  passed(): number;
  /** From now on calls need this key; those that wait for an answer are broken off. */
  setApiKey(key: string): void;
  stop(): Promise<void>;
}

const unauthenticated = '16';

export async function startTemporalGateway(options: GatewayOptions): Promise<TemporalGateway> {
  let { apiKey } = options;
  let passed = 0;
  const open = new Set<http2.Http2Session>();
  const upstream = http2.connect(`http://${options.target}`);
  // The server behind is stopped by its own test; what was open ends with it.
  upstream.on('error', () => undefined);
  const server = http2.createSecureServer({
    cert: readFileSync(options.certificate.cert),
    key: readFileSync(options.certificate.key),
    ...(options.clientAuthority === undefined
      ? {}
      : { ca: readFileSync(options.clientAuthority), requestCert: true, rejectUnauthorized: true }),
  });
  server.on('session', (session) => {
    open.add(session);
    session.on('error', () => undefined);
    session.on('close', () => open.delete(session));
  });
  server.on('stream', (incoming, headers) => {
    incoming.on('error', () => undefined);
    const authorization = String(headers.authorization ?? '');
    if (apiKey !== undefined && authorization !== `Bearer ${apiKey}`) {
      const reason = options.refusal?.(authorization) ?? 'the API key is missing or unknown';
      incoming.respond(
        {
          ':status': 200,
          'content-type': 'application/grpc',
          'grpc-status': unauthenticated,
          'grpc-message': reason.replace(/[^ -~]|%/g, (character) => encodeURIComponent(character)),
        },
        { endStream: true },
      );
      return;
    }
    passed++;
    pass(incoming, headers, upstream);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    address: `127.0.0.1:${port}`,
    passed: () => passed,
    setApiKey: (key) => {
      apiKey = key;
      for (const session of open) session.destroy();
    },
    stop: async () => {
      for (const session of open) session.destroy();
      upstream.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function pass(
  incoming: http2.ServerHttp2Stream,
  headers: http2.IncomingHttpHeaders,
  upstream: http2.ClientHttp2Session,
): void {
  const { authorization: _authorization, ':scheme': _scheme, ...rest } = headers;
  const outgoing = upstream.request({ ...rest, ':scheme': 'http' });
  outgoing.on('error', () => incoming.close(http2.constants.NGHTTP2_CANCEL));
  incoming.on('close', () => outgoing.close(http2.constants.NGHTTP2_CANCEL));
  let trailers: http2.IncomingHttpHeaders | undefined;
  outgoing.on('trailers', (received: http2.IncomingHttpHeaders) => {
    trailers = received;
  });
  outgoing.on('response', (answer, flags) => {
    if (incoming.destroyed) return;
    const only = (flags & http2.constants.NGHTTP2_FLAG_END_STREAM) !== 0;
    incoming.respond(answer, { endStream: only, waitForTrailers: !only });
  });
  incoming.on('wantTrailers', () => incoming.sendTrailers(trailers ?? {}));
  incoming.pipe(outgoing);
  outgoing.pipe(incoming);
}
