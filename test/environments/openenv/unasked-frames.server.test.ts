// Frames that answer no request are not taken as replies, and do not end the session.
import { afterEach, describe, expect, it } from 'vitest';
import type { Environment, EnvironmentBackend } from '../../../src/environments/environment.js';
import { createOpenEnvBackend } from '../../../src/environments/openenv/openenv-backend.js';
import { contentText } from '../../../src/episode/observation.js';
import { observationFrame, startScriptedServer, type Script } from '../scripted-server.js';
import { counterTask } from '../stand-in.js';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function backendOn(script: Script): Promise<EnvironmentBackend> {
  const server = await startScriptedServer(script);
  const backend = createOpenEnvBackend({ url: server.url, maxSessions: 1, callTimeoutMs: 3000 });
  closers.push(
    () => server.close(),
    () => backend.close(),
  );
  return backend;
}

const open = (backend: EnvironmentBackend): Promise<Environment> =>
  backend.open(counterTask(1), { seed: 1, episodeId: 'e', tryNumber: 0 }, AbortSignal.timeout(10_000));

const unasked = [
  '{"type":"progress","data":{}}',
  '{"type":"progress","data":{"observation":{"result":"half"},"reward":0.5,"done":true}}',
  '{"type":"heartbeat"}',
  '{"type":"log","data":"loading"}',
  '{"type":"log","data":null}',
  '{"type":"state","data":{"step_count":1}}',
  '{"type":"mcp","data":{"jsonrpc":"2.0","method":"notifications/progress","params":{}}}',
  '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}',
  '[{"jsonrpc":"2.0","method":"notifications/message"}]',
  '{"type":7,"data":{}}',
  '{"type":"error_count","data":{"code":"CAPACITY_REACHED"}}',
  'ping',
  '',
  'null',
];

describe('a frame that nobody asked for', () => {
  it.each(unasked)('%s before, between and after replies changes nothing', async (text) => {
    const backend = await backendOn({
      answers: ({ type, data }, call) => {
        if (type === 'reset') return [text, observationFrame({}, 0), text];
        if (data.type === 'list_tools') return [];
        return [text, observationFrame({ result: `answer ${call}` }, call), text, text];
      },
    });
    const environment = await open(backend);
    for (const turn of [1, 2, 3]) {
      const call = { name: 'look', arguments: {} };
      const { content } = await environment.callTool(call, { turn, tryNumber: 0 });
      expect(contentText(content)).toBe(`answer ${turn}`);
    }
    const { outcome } = await environment.grade({ finalAnswer: '', tryNumber: 0 });
    expect(outcome).toEqual({ status: 'graded', value: 3 });
    await environment.close();
    await (await open(backend)).close();
  });

  it('is ignored by an idle session, also if it is an error that ends nothing', async () => {
    const backend = await backendOn({
      answers: ({ type }) =>
        type === 'reset'
          ? [observationFrame({}, 0), '{"type":"error","data":{"code":"SLOW","message":"busy"}}']
          : [],
    });
    const environment = await open(backend);
    await environment.close();
    await (await open(backend)).close();
  });

  it('makes the grade unknown if it is a second observation, because either could be the answer', async () => {
    const backend = await backendOn({
      answers: ({ type, data }) => {
        if (type === 'reset') return [observationFrame({}, 0)];
        if (data.type === 'list_tools') return [];
        return [observationFrame({ result: 'half' }, 0), observationFrame({ result: 'whole' }, 1)];
      },
    });
    const environment = await open(backend);
    const call = { name: 'look', arguments: {} };
    await environment.callTool(call, { turn: 1, tryNumber: 0 });
    await expect(environment.callTool(call, { turn: 2, tryNumber: 0 })).rejects.toMatchObject({
      ...{ kind: 'unavailable', reason: 'socket_lost' },
      message: expect.stringMatching(/sent an observation that nobody asked for/) as string,
    });
    await environment.close();
  });
});
