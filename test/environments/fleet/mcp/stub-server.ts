// An instance's MCP servers as one small HTTP server, which a test changes while it runs.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

interface Message {
  id?: number;
  method: string;
  params?: { protocolVersion?: string; cursor?: string };
}

type Answer = { result: object } | { error: { code: number; message: string } };

export interface StubMcp {
  root: string;
  /** Tools by place; absent: the place answers 404. */
  tools: Record<string, string[]>;
  /** Answers a call, as an object or as JSON text; absent: the text `done`. */
  onCall?: () => Answer | string;
  /** The tools of all places as JSON text, in pages. */
  toolsJson?: readonly string[];
  /** Whether the notification behind `initialize` stays unanswered. */
  hangs: boolean;
  /** Hung requests that the client has ended. */
  ended: number;
  close(): Promise<void>;
}

export async function startStubMcp(): Promise<StubMcp> {
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const stub: StubMcp = {
    ...{ root: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, tools: {} },
    ...{ hangs: false, ended: 0 },
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const names = stub.tools[(request.url ?? '').slice(1)];
    if (!names) return void response.writeHead(404).end();
    const { id, method, params } = JSON.parse(Buffer.concat(chunks).toString()) as Message;
    if (id === undefined) {
      if (stub.hangs) response.on('close', () => (stub.ended += 1));
      else response.writeHead(202).end();
      return;
    }
    const answers: Record<string, () => Answer | string> = {
      initialize: () => ({
        result: {
          protocolVersion: params?.protocolVersion,
          ...{ capabilities: { tools: {} }, serverInfo: { name: 'stub', version: '1' } },
        },
      }),
      'tools/list': () => {
        if (!stub.toolsJson)
          return { result: { tools: names.map((name) => ({ name, inputSchema: { type: 'object' } })) } };
        const page = Number(params?.cursor ?? 0);
        const next = page + 1 < stub.toolsJson.length ? `,"nextCursor":"${page + 1}"` : '';
        return `{"result":{"tools":${stub.toolsJson[page]}${next}}}`;
      },
      'tools/call': stub.onCall ?? (() => ({ result: { content: [{ type: 'text', text: 'done' }] } })),
    };
    const body = answers[method]?.() ?? { error: { code: -32601, message: 'no such method' } };
    response
      .writeHead(200, { 'content-type': 'application/json' })
      .end(
        `{"jsonrpc":"2.0","id":${id},${(typeof body === 'string' ? body : JSON.stringify(body)).slice(1)}`,
      );
  }
  return stub;
}
