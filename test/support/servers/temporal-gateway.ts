// A gateway like those in front of remote Temporal servers: TLS, client certificates, API keys. The dev server has none of these, so the
// gateway terminates TLS and passes each call on unchanged over HTTP/2.
import { readFileSync } from 'node:fs';
import * as http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import type { Certificate } from './certificates.js';

export interface GatewayOptions {
  /** `host:port` of the server behind the gateway. */
  target: string;
  certificate: Certificate;
  /** Path of the authority that signs client certificates. If absent, no client certificate is required. */
  clientAuthority?: string;
  /** A call without this key is answered with UNAUTHENTICATED, and with `refusal` as the reason. */
  apiKey?: string;
  /** Makes the reason from the `authorization` header of the call. */
  refusal?: (authorization: string) => string;
}

export interface TemporalGateway {
  address: string;
  /** Number of calls that were passed on. */
  passed(): number;
  /** From now on calls need this key. Calls that still wait for an answer are aborted. */
  setApiKey(key: string): void;
  stop(): Promise<void>;
}

const unauthenticated = '16';

export async function startTemporalGateway(options: GatewayOptions): Promise<TemporalGateway> {
  let { apiKey } = options;
  let passed = 0;
  const open = new Set<http2.Http2Session>();
  const upstream = http2.connect(`http://${options.target}`);
  // A test stops the server behind the gateway itself; that ends the open calls.
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
