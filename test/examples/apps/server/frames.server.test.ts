// The protocol of OpenEnv 0.10 on `/ws`, one case at a time.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EnvironmentServer } from '../../../../examples/apps/server/environment-server.js';
import { openRawSocket } from '../../../support/servers/raw-socket.js';
import { startCounterServer, token, worlds } from '../../../environments/stand-in.js';

let server: EnvironmentServer;
beforeAll(async () => {
  server = await startCounterServer();
});
afterAll(() => server.close());

const open = () => openRawSocket(server.url);
const reset = { type: 'reset', data: { task_key: 'counter/up/2', seed: 7, episode_id: 'ep1', junk: 1 } };
const increment = { type: 'step', data: { type: 'call_tool', tool_name: 'increment', arguments: {} } };

async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error('the condition did not come true within 5 s');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

describe('reset', () => {
  it('shows prompt, task and variables in the observation, and ignores unknown keys', async () => {
    const client = await open();
    const metadata = { task_key: 'counter/up/2', env_key: 'counter' };
    expect(await client.ask(reset)).toEqual({
      type: 'observation',
      data: {
        observation: {
          metadata,
          prompt: 'Count to 2.',
          task_key: 'counter/up/2',
          env_key: 'counter',
          difficulty: 1,
          env_variables: { CURRENT_DATE: '2026-01-15' },
        },
        reward: null,
        done: false,
        metadata,
      },
    });
    client.socket.close();
  });

  it('selects the task by split and index, or else the first task', async () => {
    const client = await open();
    const third = await client.ask({ type: 'reset', data: { split: 'train', index: 2 } });
    expect(third.data.observation.task_key).toBe('counter/up/3');
    expect((await client.ask({ type: 'reset' })).data.observation.task_key).toBe('counter/up/1');
    client.socket.close();
  });

  it('restarts the world', async () => {
    const client = await open();
    await client.ask(reset);
    await client.ask(increment);
    await client.ask(reset);
    expect((await client.ask(increment)).data.observation.result.data).toBe('1');
    client.socket.close();
  });

  it.each([
    [
      { task_key: 'nowhere/1' },
      'EXECUTION_ERROR',
      /no app of this server has the task "nowhere\/1"; apps: counter/,
    ],
    [{ split: 'test' }, 'EXECUTION_ERROR', /unknown split "test"/],
    [{ split: 'train', index: 4 }, 'EXECUTION_ERROR', /Invalid task index 4; counter has 4 tasks/],
    [{ seed: -1 }, 'VALIDATION_ERROR', /Invalid message/],
    [{ seed: 'x' }, 'VALIDATION_ERROR', /Invalid message/],
    [{ episode_id: 'e'.repeat(256) }, 'VALIDATION_ERROR', /Invalid message/],
    [{ token: 'wrong', fault_rate: 1 }, 'FORBIDDEN', /token is wrong/],
  ])('refuses %j with %s and stays open', async (data, code, message) => {
    const client = await open();
    const error = await client.ask({ type: 'reset', data });
    expect(error).toMatchObject({ type: 'error', data: { code } });
    expect(error.data.message).toMatch(message);
    expect((await client.ask(reset)).type).toBe('observation');
    client.socket.close();
  });
});

describe('step', () => {
  it('gives a text result in FastMCP’s form, and no reward', async () => {
    const client = await open();
    await client.ask(reset);
    expect(await client.ask(increment)).toEqual({
      type: 'observation',
      data: {
        observation: {
          metadata: {},
          tool_name: 'increment',
          result: {
            content: [{ type: 'text', text: '1', annotations: null, meta: null }],
            structured_content: { result: '1' },
            meta: { fastmcp: { wrap_result: true } },
            data: '1',
            is_error: false,
          },
          error: null,
        },
        reward: null,
        done: false,
      },
    });
    client.socket.close();
  });

  it('reports the model’s mistakes in `error`, with a class guessed from the text', async () => {
    const client = await open();
    await client.ask(reset);
    const call = (tool_name: string) => client.ask({ type: 'step', data: { tool_name } });
    expect((await call('refuse')).data.observation).toMatchObject({
      result: null,
      error: { error_type: 'tool_not_found', message: 'repository x not found' },
    });
    expect((await call('jump')).data.observation.error).toEqual({
      error_type: 'tool_not_found',
      message: 'unknown tool jump',
    });
    client.socket.close();
  });

  it('lists tools, each with a string as description, before and after a reset', async () => {
    const client = await open();
    const list = { type: 'step', data: { type: 'list_tools' } };
    const before = await client.ask(list);
    await client.ask(reset);
    const after = await client.ask(list);
    expect(after.data.observation.tools).toEqual(before.data.observation.tools);
    expect(after.data.observation.tools).toHaveLength(4);
    for (const tool of after.data.observation.tools as Record<string, unknown>[]) {
      expect(Object.keys(tool)).toEqual(['name', 'description', 'input_schema']);
      expect(typeof tool.description).toBe('string');
    }
    client.socket.close();
  });

  it('answers a call before any reset with the advice to reset first', async () => {
    const client = await open();
    expect((await client.ask(increment)).data.observation.error.message).toMatch(/send a reset first/);
    client.socket.close();
  });

  it.each([
    ['a key too many', { ...increment.data, colour: 'red' }, ['colour'], 'extra_forbidden'],
    ['no tool name', { type: 'call_tool' }, ['tool_name'], 'missing'],
    ['a tool name that is no text', { tool_name: 3 }, ['tool_name'], 'string_type'],
    ['arguments as JSON text', { tool_name: 'increment', arguments: '{}' }, ['arguments'], 'dict_type'],
    ['another action', { type: 'jump', tool_name: 'increment' }, ['type'], 'literal_error'],
  ])('refuses an action with %s', async (_, data, loc, type) => {
    const client = await open();
    const error = await client.ask({ type: 'step', data });
    expect(error.data).toMatchObject({ code: 'VALIDATION_ERROR', message: 'Invalid message' });
    expect(error.data.errors).toEqual([expect.objectContaining({ loc, type, msg: expect.any(String) })]);
    client.socket.close();
  });

  it('answers a bug in the app with EXECUTION_ERROR and stays open', async () => {
    const client = await open();
    await client.ask(reset);
    const error = await client.ask({ type: 'step', data: { tool_name: 'crash' } });
    expect(error.data).toEqual({ code: 'EXECUTION_ERROR', message: 'table counter has no column n' });
    expect((await client.ask(increment)).data.observation.result.data).toBe('1');
    client.socket.close();
  });

  it('cuts ten megabytes of output and says so', async () => {
    const client = await open();
    await client.ask(reset);
    const { data } = await client.ask({ type: 'step', data: { tool_name: 'shout' } });
    expect(data.observation.result.data).toMatch(
      /^x{100000}\n\[cut: 10000000 characters, the first 100000 are shown\]$/,
    );
    client.socket.close();
  });

  it('answers two frames sent at once in their order', async () => {
    const client = await open();
    await client.ask(reset);
    client.send(increment);
    client.send(increment);
    expect((await client.next()).data.observation.result.data).toBe('1');
    expect((await client.next()).data.observation.result.data).toBe('2');
    client.socket.close();
  });
});

describe('state', () => {
  it('contains what the agent has received, and nothing of the solution', async () => {
    const client = await open();
    expect((await client.ask({ type: 'state' })).data).toEqual({
      episode_id: null,
      step_count: 0,
      task_key: null,
      env_key: null,
    });
    await client.ask(reset);
    await client.ask(increment);
    expect((await client.ask({ type: 'state' })).data).toEqual({
      episode_id: 'ep1',
      step_count: 1,
      task_key: 'counter/up/2',
      env_key: 'counter',
    });
    client.socket.close();
  });
});

describe('invalid frames', () => {
  it.each([
    ['not JSON', '{', 'INVALID_JSON'],
    ['of an unknown type', { type: 'jump' }, 'UNKNOWN_TYPE'],
    ['without a type', {}, 'UNKNOWN_TYPE'],
    ['with a key too many', { type: 'state', colour: 1 }, 'VALIDATION_ERROR'],
    ['a step without data', { type: 'step' }, 'VALIDATION_ERROR'],
    ['a reset whose data is a list', { type: 'reset', data: [] }, 'VALIDATION_ERROR'],
  ])('%s: an error, and the socket stays open', async (_, frame, code) => {
    const client = await open();
    expect((await client.ask(frame)).data.code).toBe(code);
    expect((await client.ask(reset)).type).toBe('observation');
    client.socket.close();
  });

  it.each([
    ['a list', '[]'],
    ['null', 'null'],
    ['binary', Buffer.from('{}')],
  ])('%s: SESSION_ERROR, and the session is over', async (_, frame) => {
    const client = await open();
    client.socket.send(frame as string | Buffer);
    expect((await client.next()).data.code).toBe('SESSION_ERROR');
    expect(await client.closed).toBe(1000);
  });

  it('more than 16 MiB: close code 1009', async () => {
    const client = await open();
    client.send('x'.repeat(16 * 1024 * 1024 + 1));
    expect(await client.closed).toBe(1009);
  });

  it('of any kind never end the server', async () => {
    const value = fc.oneof(fc.jsonValue(), fc.string());
    const frame = fc.oneof(
      fc.string(),
      fc.json(),
      fc
        .record(
          {
            type: fc.constantFrom('reset', 'step', 'state', 'mcp', 'grade', 'x', '__proto__'),
            data: fc.oneof(
              value,
              fc.record(
                {
                  type: fc.constantFrom('call_tool', 'list_tools', 'constructor'),
                  tool_name: value,
                  arguments: value,
                  metadata: value,
                  seed: value,
                  task_key: value,
                  token: value,
                  method: fc.constantFrom('tools/call', 'tools/list', 'openenv/session/close'),
                  params: value,
                  jsonrpc: fc.constantFrom('2.0', '1.0'),
                  id: value,
                },
                { requiredKeys: [] },
              ),
            ),
          },
          { requiredKeys: ['type'] },
        )
        .map((object) => JSON.stringify(object)),
    );
    let client = await open();
    await fc.assert(
      fc.asyncProperty(frame, async (text) => {
        if (client.socket.readyState !== client.socket.OPEN) client = await open();
        const reply = await client.ask(text);
        expect(typeof reply.type).toBe('string');
        if (reply.data.code === 'SESSION_ERROR') await client.closed;
      }),
      { numRuns: 500 },
    );
    client.socket.terminate();
    const after = await open();
    expect((await after.ask(reset)).type).toBe('observation');
    after.socket.close();
  });
});

describe('sessions', () => {
  it('end without a reply to `close`, with close code 1000', async () => {
    const client = await open();
    client.send({ type: 'close' });
    expect(await client.closed).toBe(1000);
    await expect(client.next()).rejects.toThrow('closed with 1000');
  });

  it('leave nothing behind after 200 dropped sockets', async () => {
    const clients = await Promise.all(Array.from({ length: 200 }, open));
    await Promise.all(clients.map((client) => client.ask(reset)));
    expect(server.stats().sessions).toBeGreaterThanOrEqual(200);
    for (const client of clients) client.socket.terminate();
    await until(() => server.stats().sessions === 0);
    expect(worlds.open).toBe(0);
  });

  it('beyond the limit are refused by a first frame that answers no request', async () => {
    const small = await startCounterServer({ maxSessions: 1 });
    const first = await openRawSocket(small.url);
    const second = await openRawSocket(small.url);
    expect(await second.next()).toEqual({
      type: 'error',
      data: {
        message: 'Server at capacity: 1/1 sessions active. Cannot accept new connections.',
        code: 'CAPACITY_REACHED',
        active_sessions: 1,
        max_sessions: 1,
      },
    });
    expect(await second.closed).toBe(1000);
    first.socket.terminate();
    await until(() => small.stats().sessions === 0);
    const third = await openRawSocket(small.url);
    expect((await third.ask(reset)).type).toBe('observation');
    await small.close();
  });

  it('without requests end after the time-out', async () => {
    const brief = await startCounterServer({ sessionTimeoutMs: 100 });
    const client = await openRawSocket(brief.url);
    await client.ask(reset);
    const error = await client.next();
    expect(error.data).toMatchObject({
      code: 'SESSION_ERROR',
      message: expect.stringMatching(/not used for 0.1 s/),
    });
    expect(await client.closed).toBe(1000);
    expect(brief.stats().sessions).toBe(0);
    await brief.close();
  });

  it('are not available to pages of other sites', async () => {
    await expect(openRawSocket(server.url, '/ws', { origin: 'https://example.org' })).rejects.toThrow('403');
    const client = await openRawSocket(server.url, '/ws', { origin: 'http://localhost:3000' });
    client.socket.close();
  });
});

describe('grade', () => {
  const grade = (data: unknown) => ({ type: 'grade', data });

  it('gives value and explanation to a client with the token; the reward is null until then', async () => {
    const client = await open();
    await client.ask(reset);
    await client.ask(increment);
    expect((await client.ask(increment)).data.reward).toBeNull();
    expect(await client.ask(grade({ token, final_answer: 'two' }))).toEqual({
      type: 'grade',
      data: { value: 1, explanation: 'counted to 2; answered "two"' },
    });
    expect((await client.ask(increment)).data).toMatchObject({ reward: 1, done: true });
    client.socket.close();
  });

  it.each([[{ token: 'wrong' }], [{}], [{ token: `${token}x` }]])('refuses %j', async (data) => {
    const client = await open();
    await client.ask(reset);
    expect((await client.ask(grade(data))).data.code).toBe('FORBIDDEN');
    client.socket.close();
  });

  it('before any reset is an error', async () => {
    const client = await open();
    expect((await client.ask(grade({ token }))).data.message).toMatch(/no task is open/);
    client.socket.close();
  });
});
