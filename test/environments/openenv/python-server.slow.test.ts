// Our client against the Python package's own server.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createOpenEnvBackend } from '../../../src/environments/openenv/openenv-backend.js';
import { textResult } from '../../../src/environments/tool-results.js';
import { contentText } from '../../../src/episode/observation.js';
import type { Task } from '../../../src/spec/records/task.js';
import { pythonWith } from '../../support/python/python-environments.js';
import { startOpenEnvFixture, type OpenEnvFixture } from '../../support/servers/openenv-fixture.js';
import { openRawSocket, type RawSocket } from '../../support/servers/raw-socket.js';
import { counterTask, startCounterServer } from '../stand-in.js';

const python = await pythonWith('openenv');

const task = (task_key = 'some/task'): Task => ({ ...counterTask(1), task_key, env_key: 'fixture' });
const openOptions = { seed: 7, episodeId: 'ep', tryNumber: 0 };
const quiet = new AbortController().signal;
const first = { turn: 0, tryNumber: 0 };

describe.skipIf(!python)('the server of openenv 0.10.0', () => {
  let fixture: OpenEnvFixture;
  beforeAll(async () => {
    fixture = await startOpenEnvFixture(python, 2);
  });
  afterAll(() => fixture?.stop());

  async function withEpisode<T>(
    run: (env: Awaited<ReturnType<ReturnType<typeof createOpenEnvBackend>['open']>>) => Promise<T>,
    options: { callTimeoutMs?: number; task?: Task; gradingToken?: string } = {},
  ): Promise<T> {
    const { task: chosen = task(), ...rest } = options;
    const backend = createOpenEnvBackend({ url: fixture.url, maxSessions: 2, ...rest });
    try {
      const env = await backend.open(chosen, openOptions, quiet);
      try {
        return await run(env);
      } finally {
        await env.close();
      }
    } finally {
      await backend.close();
    }
  }

  const call = (name: string, args: Record<string, unknown> = {}) => ({ name, arguments: args });

  it('lists its tools, even those without a description', () =>
    withEpisode(async ({ tools }) => {
      expect(tools.map(({ name }) => name).sort()).toEqual([
        'add',
        'die',
        'increment',
        'picture',
        'refuse',
        'slow',
      ]);
      expect(tools.find(({ name }) => name === 'refuse')?.description).toBe('');
      expect(tools.find(({ name }) => name === 'add')?.input_schema).toMatchObject({
        type: 'object',
        required: ['a', 'b'],
      });
    }));

  it('keeps its state between calls, and resets it for the next episode on the same socket', () =>
    withEpisode(async (env) => {
      expect(await env.callTool(call('increment'), first)).toEqual(textResult('1'));
      expect(await env.callTool(call('increment'), first)).toEqual(textResult('2'));
    }));

  it('gives structured results as compact JSON', () =>
    withEpisode(async (env) => {
      expect(await env.callTool(call('add', { a: 1, b: 2 }), first)).toEqual(textResult('{"sum":3}'));
    }));

  it("shows the model a tool's error, without links to a manual", () =>
    withEpisode(async (env) => {
      expect(await env.callTool(call('refuse'), first)).toEqual(
        textResult("Error calling tool 'refuse': repository x not found", true),
      );
      const bad = await env.callTool(call('add', { a: 'one', b: 2 }), first);
      expect(bad.isError).toBe(true);
      expect(contentText(bad.content)).toContain('valid integer');
      expect(contentText(bad.content)).not.toContain('https://');
      expect(await env.callTool(call('jump'), first)).toMatchObject({ isError: true });
    }));

  it('describes images to the model, and identifies them', () =>
    withEpisode(async (env) => {
      const { content } = await env.callTool(call('picture'), first);
      const sha256 = '6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0';
      expect(content).toEqual([{ type: 'image', mime: 'image/png', sha256, size: 70 }]);
      expect(contentText(content)).toBe('[image image/png, 70 bytes]');
    }));

  it('grades by the last observation’s reward, whether or not a token is set', async () => {
    for (const gradingToken of [undefined, 'token']) {
      const grade = await withEpisode(
        async (env) => {
          await env.callTool(call('increment'), first);
          await env.callTool(call('increment'), first);
          return env.grade({ finalAnswer: '', tryNumber: 0 });
        },
        gradingToken === undefined ? {} : { gradingToken },
      );
      expect(grade.outcome).toEqual({ status: 'graded', value: 1 });
    }
  });

  it('gives the reward’s explanation in the metadata, which the model does not see', async () => {
    await withEpisode(
      async (env) => {
        const result = await env.callTool(call('increment'), first);
        expect(result).toEqual(textResult('1'));
        const grade = await env.grade({ finalAnswer: '', tryNumber: 0 });
        expect(grade).toEqual({ outcome: { status: 'graded', value: 0 }, explanation: 'counted to 1 of 2' });
      },
      { task: task('explained') },
    );
  });

  it('causes a charged failure if it cannot open a task', async () => {
    await expect(withEpisode(async () => undefined, { task: task('broken') })).rejects.toMatchObject({
      kind: 'failed',
      reason: 'open',
      message: expect.stringContaining('this task cannot be opened'),
    });
  });

  it('causes a charged failure if one call does not end while other calls are answered', async () => {
    await expect(
      withEpisode((env) => env.callTool(call('slow', { seconds: 1.5 }), first), { callTimeoutMs: 500 }),
    ).rejects.toMatchObject({ kind: 'failed', reason: 'timeout' });
  });

  it('is waited for if it is full', async () => {
    const takers = [await takePlace(fixture.url), await takePlace(fixture.url)];
    const start = Date.now();
    setTimeout(() => takers.forEach((taker) => taker.socket.terminate()), 300);
    await withEpisode(async (env) => {
      expect(await env.callTool(call('increment'), first)).toEqual(textResult('1'));
    });
    expect(Date.now() - start).toBeGreaterThan(290);
  });

  it('sends the same frames as the example server', async () => {
    const ours = await startCounterServer();
    const theirs = await openRawSocket(fixture.url);
    const own = await openRawSocket(ours.url);
    const step = (data: unknown) => ({ type: 'step', data });
    const frames = [
      { type: 'reset', data: { seed: 7, task_key: 'counter/up/1', junk: 1 } },
      step({ type: 'call_tool', tool_name: 'increment', arguments: {} }),
      step({ type: 'call_tool', tool_name: 'refuse', arguments: {} }),
      step({ type: 'call_tool', tool_name: 'increment', arguments: {}, colour: 'red' }),
      step({ type: 'call_tool', tool_name: 'increment', arguments: '{}' }),
      step({ type: 'call_tool' }),
      { type: 'step' },
      { type: 'state', colour: 'red' },
      { type: 'jump' },
      { type: 'reset', data: [] },
      { type: 'mcp', data: { jsonrpc: '2.0', method: 'initialize', params: {}, id: 1 } },
      { type: 'mcp', data: { jsonrpc: '2.0', method: 'tools/call', params: {}, id: 'a' } },
      { type: 'mcp', data: { jsonrpc: '2.0', method: 'tools/call', params: { name: 'increment' }, id: 2 } },
      { type: 'mcp', data: { jsonrpc: '2.0', method: 'openenv/session/close', params: {}, id: 3 } },
      '{',
    ];
    for (const frame of frames) {
      const [expected, actual] = [await theirs.ask(frame), await own.ask(frame)];
      expect({ frame, shape: shape(actual) }).toEqual({ frame, shape: shape(expected) });
    }
    theirs.send({ type: 'close' });
    own.send({ type: 'close' });
    expect(await own.closed).toBe(await theirs.closed);
    await ours.close();
  });

  it('is unavailable when it dies in a call, and afterwards', async () => {
    const mortal = await startOpenEnvFixture(python, 2);
    const backend = createOpenEnvBackend({ url: mortal.url, maxSessions: 2 });
    const env = await backend.open(task(), openOptions, quiet);
    await expect(env.callTool(call('die'), first)).rejects.toMatchObject({
      kind: 'unavailable',
      reason: 'socket_lost',
    });
    await env.close();
    await expect(backend.open(task(), openOptions, quiet)).rejects.toMatchObject({
      kind: 'unavailable',
      reason: 'connect',
    });
    expect(await backend.healthy()).toBe(false);
    await backend.close();
    await mortal.stop();
  });
});

/** A socket with a session. Waits while abandoned calls still hold their sessions. */
async function takePlace(url: string): Promise<RawSocket> {
  for (;;) {
    const socket = await openRawSocket(url);
    if ((await socket.ask({ type: 'state' })).type === 'state') return socket;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Keys and types of a frame, and the values of codes and error types; without texts and parts that an app may add. */
function shape(value: unknown, key = ''): unknown {
  if (key === 'metadata' || key === 'reward' || key === 'input') return '…';
  if (Array.isArray(value)) return value.map((item) => shape(item));
  if (typeof value === 'object' && value !== null) {
    const names = Object.keys(value).filter((name) => !['url', 'ctx', ...taskFields].includes(name));
    return Object.fromEntries(names.sort().map((name) => [name, shape((value as never)[name], name)]));
  }
  if (['code', 'type', 'error_type', 'loc', 'id', 'jsonrpc'].includes(key)) return value;
  return value === null ? null : typeof value;
}

const taskFields = ['prompt', 'task_key', 'env_key', 'difficulty', 'env_variables'];
