// The HTTP routes of OpenEnv 0.10: stateless routes, the task API, JSON-RPC sessions and grading.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  createEnvironmentServer,
  type EnvironmentServer,
} from '../../../../examples/apps/server/environment-server.js';
import { openRawSocket } from '../../../support/servers/raw-socket.js';
import { counter, noFaults, startCounterServer, token, worlds } from '../../../environments/stand-in.js';

let server: EnvironmentServer;
beforeAll(async () => {
  server = await startCounterServer();
});
afterAll(() => server.close());

async function get(path: string): Promise<{ status: number; body: unknown }> {
  const response = await fetch(server.url + path);
  return { status: response.status, body: await response.json() };
}

async function post(path: string, body: unknown): Promise<{ status: number; body: unknown }> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const response = await fetch(server.url + path, { method: 'POST', body: text });
  return { status: response.status, body: await response.json() };
}

interface RpcReply {
  result?: Record<string, unknown>;
  error?: { code: number; message: string; data: unknown };
}

async function rpc(method: string, params: Record<string, unknown> = {}): Promise<RpcReply> {
  const { status, body } = await post('/mcp', { jsonrpc: '2.0', method, params, id: 1 });
  expect(status).toBe(200);
  expect(body).toMatchObject({ jsonrpc: '2.0', id: 1 });
  return body as RpcReply;
}

describe('what `openenv validate` checks', () => {
  it.each([
    ['/health', { status: 'healthy' }],
    ['/metadata', { name: 'longhaul', description: expect.any(String) }],
    ['/schema', { action: expect.any(Object), observation: expect.any(Object), state: expect.any(Object) }],
    ['/openapi.json', { info: { version: '1.0.0' }, paths: { '/reset': {}, '/step': {}, '/state': {} } }],
  ])('%s', async (path, body) => {
    expect(await get(path)).toMatchObject({ status: 200, body });
  });

  it('an empty JSON-RPC request gets a JSON-RPC answer', async () => {
    expect(await post('/mcp', {})).toMatchObject({
      status: 200,
      body: { jsonrpc: '2.0', error: { code: -32600 } },
    });
  });
});

describe('stateless routes', () => {
  it('reset, and keep no session', async () => {
    const { status, body } = await post('/reset', { task_key: 'counter/up/2', seed: 1 });
    expect(status).toBe(200);
    expect(body).toMatchObject({ observation: { prompt: 'Count to 2.' }, reward: null, done: false });
    expect(await get('/state')).toMatchObject({ body: { episode_id: null, step_count: 0 } });
    expect(worlds.open).toBe(0);
    expect(server.stats().sessions).toBe(0);
  });

  it('have null for empty metadata', async () => {
    const { body } = await post('/step', { action: { type: 'list_tools' } });
    expect(body).toMatchObject({ metadata: null, observation: { metadata: {}, tools: expect.any(Array) } });
  });

  it.each([
    ['/step', {}, ['body', 'action'], 'missing'],
    ['/step', { action: { tool_name: 1 } }, ['body', 'action', 'tool_name'], 'string_type'],
    ['/reset', { seed: -1 }, ['body', 'seed'], 'greater_than_equal'],
    ['/reset', '{', ['body', 0], 'json_invalid'],
    ['/counter/task', { split: 'train' }, ['body', 'index'], 'missing'],
    ['/counter/tasks', { split: 'train', colour: 1 }, ['body', 'colour'], 'extra_forbidden'],
  ])('%s refuses %j with 422', async (path, sent, loc, type) => {
    const { status, body } = await post(path, sent);
    expect(status).toBe(422);
    expect(body).toEqual({ detail: [{ loc, type, msg: expect.any(String), input: expect.anything() }] });
  });

  it('accept only their methods', async () => {
    expect((await get('/mcp')).status).toBe(405);
    expect((await get('/reset')).status).toBe(405);
    expect((await get('/nowhere')).status).toBe(404);
  });

  it('are not available to pages of other sites', async () => {
    const response = await fetch(`${server.url}/health`, { headers: { origin: 'https://example.org' } });
    expect(response.status).toBe(403);
  });
});

describe('the task API', () => {
  it('lists environments, splits and tasks', async () => {
    expect((await get('/list_environments')).body).toEqual(['counter']);
    expect((await get('/Counter/splits')).body).toEqual([
      { name: 'train', type: 'train' },
      { name: 'held_out', type: 'custom' },
    ]);
    expect((await post('/counter/num_tasks', { split: 'train' })).body).toEqual({ num_tasks: 4 });
    expect((await post('/counter/task', { split: 'train', index: 1 })).body).toMatchObject({
      task: { task_key: 'counter/up/2' },
    });
    expect((await post('/counter/task_range', { split: 'train', start: 1, stop: 3 })).body).toMatchObject({
      tasks: [{ task_key: 'counter/up/2' }, { task_key: 'counter/up/3' }],
    });
    expect((await post('/counter/tasks', { split: 'held_out' })).body).toMatchObject({
      env_name: 'counter',
      tasks: [{ task_key: 'counter/up/9' }],
    });
  });

  it('reports unknown names', async () => {
    expect(await post('/counter/task', { split: 'train', index: 4 })).toEqual({
      status: 400,
      body: { detail: 'Invalid task index' },
    });
    expect(await get('/chess/splits')).toEqual({
      status: 404,
      body: { detail: "unknown environment 'chess'" },
    });
  });
});

describe('JSON-RPC', () => {
  it.each([
    ['another version', { jsonrpc: '1.0', method: 'tools/list', id: 1 }, -32600],
    ['parameters that are no object', { jsonrpc: '2.0', method: 'tools/list', params: [], id: 1 }, -32600],
    ['a key too many', { jsonrpc: '2.0', method: 'tools/list', colour: 1, id: 1 }, -32600],
    ['no JSON', '{', -32700],
  ])('refuses %s', async (_, request, code) => {
    expect(await post('/mcp', request)).toMatchObject({ status: 200, body: { id: null, error: { code } } });
  });

  it.each([
    ['initialize', {}, -32601],
    ['tools/call', {}, -32602],
    ['tools/call', { name: 'increment', arguments: '{}' }, -32602],
    ['tools/call', { name: 'increment', session_id: 'none' }, -32602],
    ['openenv/session/close', {}, -32602],
    ['openenv/session/close', { session_id: 'none' }, -32602],
    ['tools/call', { name: 'increment' }, -32603],
  ])('%s with %j is the error %i', async (method, params, code) => {
    expect((await rpc(method, params)).error?.code).toBe(code);
  });

  it('a session outlives its socket, has one socket at a time, and ends when it is closed', async () => {
    const { session_id } = (await rpc('openenv/session/create')).result as { session_id: string };
    const path = `/ws?session_id=${session_id}`;
    const socket = await openRawSocket(server.url, path);
    await socket.ask({ type: 'reset', data: { task_key: 'counter/up/2' } });
    const call = async () => (await rpc('tools/call', { name: 'increment', session_id })).result?.data;
    expect(await call()).toBe('1');

    const second = await openRawSocket(server.url, path);
    expect((await second.next()).data).toMatchObject({
      code: 'SESSION_ERROR',
      message: expect.stringMatching(/already has an attached WebSocket/),
    });
    socket.socket.close();
    await socket.closed;
    expect(await call()).toBe('2');

    const third = await openRawSocket(server.url, path);
    expect(
      (await third.ask({ type: 'step', data: { tool_name: 'increment' } })).data.observation.result.data,
    ).toBe('3');
    expect((await rpc('openenv/session/close', { session_id })).result).toMatchObject({
      closed: false,
      closing: true,
    });
    third.socket.close();
    await third.closed;
    expect((await rpc('tools/list', { session_id })).error?.message).toBe(
      `Unknown session_id: ${session_id}`,
    );
    expect(worlds.open).toBe(0);
  });

  it('a socket cannot attach to an unknown session', async () => {
    const socket = await openRawSocket(server.url, '/ws?session_id=none');
    expect((await socket.next()).data).toEqual({
      code: 'SESSION_ERROR',
      message: 'Unknown session_id: none',
    });
    expect(await socket.closed).toBe(1000);
  });

  it('is also answered on the socket /mcp', async () => {
    const socket = await openRawSocket(server.url, '/mcp');
    const request = { jsonrpc: '2.0', method: 'tools/list', id: 'x' };
    expect(await socket.ask(request)).toMatchObject({ id: 'x', result: { tools: expect.any(Array) } });
    expect(await socket.ask('{')).toMatchObject({ error: { code: -32700 } });
    socket.socket.close();
  });
});

describe('POST /x/grade', () => {
  it('grades a session for a client with the token', async () => {
    const { session_id } = (await rpc('openenv/session/create')).result as { session_id: string };
    const socket = await openRawSocket(server.url, `/ws?session_id=${session_id}`);
    await socket.ask({ type: 'reset', data: { task_key: 'counter/up/0' } });
    expect(await post('/x/grade', { token, session_id, final_answer: 'x' })).toEqual({
      status: 200,
      body: { value: 1, explanation: 'counted to 0; answered "x"' },
    });
    expect((await post('/x/grade', { token: 'wrong', session_id })).status).toBe(403);
    expect((await post('/x/grade', { token: 'wrong', session_id: 'none' })).status).toBe(403);
    expect((await post('/x/grade', { token, session_id: 'none' })).status).toBe(404);
    socket.socket.close();
    await socket.closed;
    await rpc('openenv/session/close', { session_id });
  });
});

describe('a server that cannot start', () => {
  it('names the used port and the fix', async () => {
    const port = Number(new URL(server.url).port);
    await expect(startCounterServer({ port })).rejects.toThrow(
      `port ${port} of 127.0.0.1 is taken by another process; choose another with --port, or 0 for any`,
    );
  });

  it('is refused on an address that others can reach, unless allowed', async () => {
    await expect(startCounterServer({ host: '0.0.0.0' })).rejects.toThrow(/not a loopback address/);
  });

  it('is refused if a tool has a reserved name', async () => {
    const tools = [{ ...counter.tools[0]!, name: 'reset' }];
    await expect(
      createEnvironmentServer({
        port: 0,
        apps: [{ ...counter, tools }],
        faults: noFaults,
        gradingToken: token,
      }),
    ).rejects.toThrow('counter: the tool name reset is reserved by OpenEnv');
  });
});
