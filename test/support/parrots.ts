// Servers that repeat secrets in their error messages, as badly written servers do.
import { once } from 'node:events';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { WebSocketServer } from 'ws';

export interface Parrot {
  url: string;
  /** How often the server has repeated a secret. */
  repeated(): number;
  stop(): Promise<void>;
}

/** Starts an environment server that refuses every token and repeats it in several encodings. */
export async function startParrotEnvironment(): Promise<Parrot> {
  let count = 0;
  const http = createServer((_, response) => response.end('{"status":"healthy"}'));
  const sockets = new WebSocketServer({ server: http });
  sockets.on('connection', (socket) => {
    socket.on('message', (message: Buffer) => {
      const { type, data } = JSON.parse(message.toString()) as { type: string; data?: { token?: string } };
      if (type === 'close') return socket.close();
      count++;
      const said = `unknown token ${inEveryWay(data?.token ?? '')}`;
      return socket.send(JSON.stringify({ type: 'error', data: { code: 'BAD_TOKEN', message: said } }));
    });
  });
  const url = await listening(http);
  return {
    url,
    repeated: () => count,
    stop: async () => {
      for (const client of sockets.clients) client.terminate();
      await closed(http);
    },
  };
}

export interface S3Parrot extends Parrot {
  /** Refuses the next put of a matching key, and repeats everything that the request was signed with. */
  refuseNext(key: RegExp): void;
}

/** Starts a proxy to an S3 server that refuses a signature. The refusal repeats `secrets`. */
export async function startS3Parrot(target: string, secrets: readonly string[]): Promise<S3Parrot> {
  const { hostname, port } = new URL(target);
  let refused: RegExp | null = null;
  let count = 0;
  const http = createServer((incoming, outgoing) => {
    const { method = '', url = '', headers } = incoming;
    if (method === 'PUT' && refused?.test(url)) {
      refused = null;
      count++;
      const said = [String(headers.authorization), ...secrets].map(inEveryWay).join(' ');
      incoming.resume();
      incoming.on('end', () => {
        outgoing.writeHead(403, { 'content-type': 'application/xml' });
        outgoing.end(
          `<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code><Message>${escaped(said)}</Message></Error>`,
        );
      });
      return;
    }
    const forwarded = request({ hostname, port, method, path: url, headers }, (reply) => {
      outgoing.writeHead(reply.statusCode ?? 502, reply.headers);
      reply.pipe(outgoing);
    });
    forwarded.on('error', () => incoming.socket.destroy());
    incoming.pipe(forwarded);
  });
  return {
    url: await listening(http),
    repeated: () => count,
    refuseNext: (key) => {
      refused = key;
    },
    stop: () => closed(http),
  };
}

/** The secret as plain text, in a URL and in base64. */
export function inEveryWay(secret: string): string {
  return [secret, encodeURIComponent(secret), Buffer.from(secret).toString('base64')].join(' ');
}

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

async function listening(http: Server): Promise<string> {
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
}

async function closed(http: Server): Promise<void> {
  http.closeAllConnections();
  http.close();
  await once(http, 'close');
}
