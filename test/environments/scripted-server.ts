// An OpenEnv server that answers as its test says, frame by frame.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { WebSocketServer } from 'ws';

export interface Frame {
  type: string;
  data: Record<string, unknown>;
}

export interface ScriptedServer {
  url: string;
  /** Frames that it has received, `close` excepted. */
  frames: Frame[];
  /** The same, as they were sent. */
  texts: string[];
  close(): Promise<void>;
}

export interface Script {
  /** Frames, as text, that answer a frame. `call`: number of calls in the episode, this one included. */
  answers: (frame: Frame, call: number, text: string) => readonly string[];
  /** Answers of the other routes by path; `/health` and `/metadata` have usual ones. */
  routes?: Readonly<Record<string, (body: unknown) => unknown>>;
}

export const observationFrame = (observation: unknown, reward: unknown, more: object = {}): string =>
  `{"type":"observation","data":${JSON.stringify({ observation, reward, done: false, ...more })}}`;

const tool = { name: 'look', description: 'Looks.', inputSchema: { type: 'object', properties: {} } };

/** `list_tools` is answered with one tool, `look`, unless `answers` returns something. */
export async function startScriptedServer({ answers, routes = {} }: Script): Promise<ScriptedServer> {
  const frames: Frame[] = [];
  const texts: string[] = [];
  const http = createServer((request, response) => {
    void (async () => {
      const pieces: Buffer[] = [];
      for await (const piece of request) pieces.push(piece as Buffer);
      const text = Buffer.concat(pieces).toString('utf8');
      const route = routes[request.url ?? ''];
      if (route) return response.end(JSON.stringify(route(text === '' ? null : JSON.parse(text))));
      if (request.url === '/health') return response.end('{"status":"healthy"}');
      if (request.url === '/metadata') return response.end('{"name":"scripted","version":"1"}');
      response.statusCode = 404;
      return response.end('{"detail":"Not Found"}');
    })();
  });
  const sockets = new WebSocketServer({ server: http });
  sockets.on('connection', (socket) => {
    let calls = 0;
    socket.on('message', (message: Buffer) => {
      const { type, data = {} } = JSON.parse(message.toString()) as Frame;
      if (type === 'close') return socket.close();
      const frame = { type, data };
      frames.push(frame);
      texts.push(message.toString());
      if (type === 'reset') calls = 0;
      const listsTools = type === 'step' && data.type === 'list_tools';
      if (type === 'step' && !listsTools) calls += 1;
      const sent = answers(frame, calls, message.toString());
      const usual = listsTools && sent.length === 0 ? [observationFrame({ tools: [tool] }, null)] : [];
      for (const text of [...sent, ...usual]) socket.send(text);
    });
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    ...{ frames, texts },
    async close() {
      for (const client of sockets.clients) client.terminate();
      http.close();
      await once(http, 'close');
    },
  };
}
