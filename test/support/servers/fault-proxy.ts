// An HTTP proxy before a real server that breaks chosen requests, as networks and overloaded services do.
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';

/**
 * `answer`: the server never sees the request, and the client gets this status. `answerAfter`: the server carries out the request, and the
 * client gets this status. `loseReply`: the server carries it out, and the connection breaks. `hang`: the server carries it out, and no
 * reply comes. `stall`: the reply's headers and half of its body come, then nothing. `trickle`: the body comes in pieces of one byte, or of
 * `bytes`, every `everyMs`, so that the connection never looks idle. `reset`: the connection breaks before the server sees anything.
 * `twice`: the server gets the request two times, and its second reply comes back.
 * `delay`: the request is carried out normally, `ms` later.
 */
export type Fault =
  | { kind: 'answer'; status: number; code: string }
  | { kind: 'answerAfter'; status: number; code: string }
  | { kind: 'loseReply' }
  | { kind: 'hang' }
  | { kind: 'stall' }
  | { kind: 'trickle'; everyMs: number; bytes?: number }
  | { kind: 'reset' }
  | { kind: 'twice' }
  | { kind: 'delay'; ms: number };

export interface FaultProxy {
  endpoint: string;
  /** Requests that were received, as `PUT /bucket/key` without the query. */
  seen: string[];
  /** `decide` is called for each request; null lets the request through. */
  plan(decide: (request: { method: string; url: string }) => Fault | null): void;
  stop(): Promise<void>;
}

export async function startFaultProxy(target: string): Promise<FaultProxy> {
  const { hostname, port } = new URL(target);
  const seen: string[] = [];
  let decide: (request: { method: string; url: string }) => Fault | null = () => null;
  const server = createServer((incoming, outgoing) => {
    const { method = '', url = '' } = incoming;
    seen.push(`${method} ${url.split('?')[0]}`);
    const fault = decide({ method, url });
    if (fault?.kind === 'reset') return void incoming.socket.destroy();
    if (fault?.kind === 'answer') {
      incoming.resume();
      incoming.on('end', () => refuse(outgoing, fault));
      return;
    }
    if (fault?.kind === 'delay') setTimeout(() => forward(incoming, outgoing, null), fault.ms);
    else if (fault?.kind === 'twice') sendTwice(incoming, outgoing);
    else forward(incoming, outgoing, fault);
  });
  const sendTwice = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    const { method = '', url = '', headers } = incoming;
    const pieces: Buffer[] = [];
    const send = (use: (reply: IncomingMessage) => void): void => {
      const forwarded = request({ hostname, port, method, path: url, headers }, use);
      forwarded.on('error', () => incoming.socket.destroy());
      forwarded.end(Buffer.concat(pieces));
    };
    const pass = (reply: IncomingMessage): void => {
      outgoing.writeHead(reply.statusCode ?? 502, reply.headers);
      reply.pipe(outgoing);
    };
    incoming.on('data', (piece: Buffer) => pieces.push(piece));
    incoming.on('end', () => send((first) => first.resume().on('end', () => send(pass))));
  };
  const forward = (
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    fault: Exclude<Fault, { kind: 'answer' | 'reset' | 'delay' | 'twice' }> | null,
  ): void => {
    const { method = '', url = '' } = incoming;
    // The host header is signed, so it is passed on as the client sent it.
    const forwarded = request({ hostname, port, method, path: url, headers: incoming.headers }, (reply) => {
      if (!fault) {
        outgoing.writeHead(reply.statusCode ?? 502, reply.headers);
        reply.pipe(outgoing);
        return;
      }
      const pieces: Buffer[] = [];
      reply.on('data', (piece: Buffer) => pieces.push(piece));
      reply.on('end', () => breakReply(fault, incoming, outgoing, reply, Buffer.concat(pieces)));
    });
    forwarded.on('error', () => incoming.socket.destroy());
    incoming.pipe(forwarded);
  };
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port');
  return {
    endpoint: `http://127.0.0.1:${address.port}`,
    seen,
    plan: (next) => {
      decide = next;
    },
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Breaks the first `times` requests for which `matches` is true. */
export function breakFirst(
  times: number,
  matches: (request: { method: string; url: string }) => boolean,
  fault: Fault,
): (request: { method: string; url: string }) => Fault | null {
  let left = times;
  return (request) => (left > 0 && matches(request) && left-- > 0 ? fault : null);
}

function breakReply(
  fault: Exclude<Fault, { kind: 'answer' | 'reset' | 'delay' | 'twice' }>,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  reply: IncomingMessage,
  body: Buffer,
): void {
  if (fault.kind === 'answerAfter') refuse(outgoing, fault);
  else if (fault.kind === 'loseReply') incoming.socket.destroy();
  else if (fault.kind === 'stall') {
    outgoing.writeHead(reply.statusCode ?? 502, reply.headers);
    outgoing.write(body.subarray(0, body.length >> 1));
  } else if (fault.kind === 'trickle') {
    outgoing.writeHead(reply.statusCode ?? 502, reply.headers);
    const { bytes = 1, everyMs } = fault;
    let sent = 0;
    const timer = setInterval(() => {
      outgoing.write(body.subarray(sent, (sent += bytes)));
      if (sent >= body.length) outgoing.end();
    }, everyMs);
    outgoing.on('close', () => clearInterval(timer));
  }
}

function refuse(outgoing: ServerResponse, { status, code }: { status: number; code: string }): void {
  outgoing.writeHead(status, { 'content-type': 'application/xml' });
  outgoing.end(`<?xml version="1.0"?><Error><Code>${code}</Code><Message>injected</Message></Error>`);
}
