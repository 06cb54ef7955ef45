// A server knows its grading token and might repeat it in an error, in a tool's result, or in an explanation.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import { createOpenEnvBackend } from '../../../src/environments/openenv/openenv-backend.js';
import { contentText } from '../../../src/episode/observation.js';
import { writings } from '../../../src/base/secrets.js';
import type { Task } from '../../../src/spec/records/task.js';

const token = 'tok"en/with+signs=93b1';
const everyWriting = [token, encodeURIComponent(token), Buffer.from(token).toString('base64')].join(' and ');
const task: Task = {
  task_key: 'parrot/1',
  prompt: 'Talk.',
  env_key: 'parrot',
  env_variables: {},
  difficulty: 1,
  template: 'parrot',
  split: 'train',
};

const http = createServer((_, response) => response.end('{"status":"healthy"}'));
const sockets = new WebSocketServer({ server: http });
/** If true, the server refuses to open tasks. */
let refuses = false;
beforeAll(async () => {
  sockets.on('connection', (socket) => {
    socket.on('message', (message: Buffer) => {
      const { type, data = {} } = JSON.parse(message.toString()) as {
        type: string;
        data?: Record<string, unknown>;
      };
      const send = (reply: unknown) => socket.send(JSON.stringify(reply));
      const said = `I know ${everyWriting}`;
      if (type === 'close') return socket.close();
      if (type === 'reset' && refuses)
        return send({ type: 'error', data: { code: 'BAD_TOKEN', message: said, errors: [{ said }] } });
      if (type === 'grade') return send({ type: 'grade', data: { value: 1, explanation: said } });
      const tools = [{ name: 'talk', description: said, inputSchema: { type: 'object', properties: {} } }];
      const observation = data.type === 'list_tools' ? { tools } : { result: said };
      return send({ type: 'observation', data: { observation, reward: null, done: false } });
    });
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
});
afterAll(async () => {
  for (const client of sockets.clients) client.terminate();
  http.close();
  await once(http, 'close');
});

describe('the grading token', () => {
  const signal = new AbortController().signal;
  const url = () => `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const options = { seed: 1, episodeId: 'e', tryNumber: 0 };
  const expectHidden = (said: string): void => {
    expect(said).toContain('[secret removed]');
    for (const writing of writings(token)) expect(said).not.toContain(writing);
  };

  it('is in nothing that the server returns', async () => {
    const backend = createOpenEnvBackend({ url: url(), gradingToken: token, maxSessions: 1 });
    try {
      const environment = await backend.open(task, options, signal);
      expectHidden(JSON.stringify(environment.tools));
      expectHidden(
        contentText(
          (await environment.callTool({ name: 'talk', arguments: {} }, { turn: 0, tryNumber: 0 })).content,
        ),
      );
      expectHidden((await environment.grade({ finalAnswer: '', tryNumber: 0 })).explanation);
      await environment.close();
      refuses = true;
      const error = await backend.open(task, options, signal).catch((thrown: Error) => thrown);
      expectHidden((error as Error).message);
      expectHidden(String((error as Error).stack));
      expectHidden(String(((error as Error).cause as Error).stack));
    } finally {
      await backend.close();
    }
  });
});
