// A server without sockets, whose answers a test can change: one world that counts up to its goal.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

interface Answer {
  status: number;
  body: unknown;
}

export interface HttpWorld {
  url: string;
  /** Headers of the newest request. */
  headers: Record<string, unknown>;
  /** Changes or replaces the answer of a path; null: as usual. */
  answer: (path: string) => Answer | null;
  close(): Promise<void>;
}

/** `routes`: paths that the server has. */
export async function startHttpWorld(
  routes = ['/health', '/schema', '/reset', '/step', '/state'],
): Promise<HttpWorld> {
  let count = 0;
  let goal = 0;
  let state: Record<string, unknown> = {};
  const usual = (path: string, body: Record<string, unknown>): unknown => {
    if (path === '/schema')
      return { action: { title: 'CountAction', properties: { by: { type: 'integer' } }, required: ['by'] } };
    if (path === '/reset') {
      [count, goal] = [0, Number(body.goal ?? 2)];
      state = { episode_id: body.episode_id, step_count: 0 };
      return { observation: { text: `Count to ${goal}.` }, reward: null, done: false };
    }
    if (path === '/step') {
      state = { ...state, step_count: Number(state.step_count) + 1 };
      count += Number((body.action as { by?: unknown } | undefined)?.by);
      return { observation: { text: `${count}` }, reward: Number(count === goal), done: count >= goal };
    }
    if (path === '/state') return state;
    return { status: 'healthy' };
  };
  const world: HttpWorld = {
    url: '',
    headers: {},
    answer: () => null,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  const server = createServer((request, response) => {
    const path = request.url ?? '';
    world.headers = request.headers;
    let text = '';
    request.on('data', (piece: Buffer) => (text += piece.toString()));
    request.on('end', () => {
      const isThere = routes.includes(path);
      const wrongMethod =
        isThere && ['/reset', '/step', '/mcp'].includes(path) !== (request.method === 'POST');
      const { status, body } = !isThere
        ? { status: 404, body: { detail: 'Not Found' } }
        : wrongMethod
          ? { status: 405, body: { detail: 'Method Not Allowed' } }
          : (world.answer(path) ?? {
              status: 200,
              body: usual(path, JSON.parse(text || '{}') as Record<string, unknown>),
            });
      response.writeHead(status).end(JSON.stringify(body));
    });
  });
  // As servers of FastAPI refuse a socket that no route takes.
  server.on('upgrade', (_, socket) => socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n'));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  world.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return world;
}
