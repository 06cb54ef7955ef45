// The client with our server: results, faults, kinds of failure (R25, R26), and what happens when a server dies.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { WebSocketServer } from 'ws';
import type { Environment, EnvironmentBackend } from '../../../src/environments/environment.js';
import {
  createOpenEnvBackend,
  type OpenEnvOptions,
} from '../../../src/environments/openenv/openenv-backend.js';
import { textResult } from '../../../src/environments/tool-results.js';
import { contentText } from '../../../src/episode/observation.js';
import type { InfrastructureFault } from '../../../examples/apps/server/app-session.js';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { isPass } from '../../../src/rl/episode-reward.js';
import { startForeignServer } from '../foreign-server.js';
import { counterTask, startCounterServer, token, worlds } from '../stand-in.js';
import { withFaults } from '../faulty-backend.js';

const quiet = new AbortController().signal;
const backends: EnvironmentBackend[] = [];
const servers: EnvironmentServer[] = [];

afterEach(async () => {
  await Promise.all(backends.splice(0).map((backend) => backend.close()));
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

async function serve(options: Parameters<typeof startCounterServer>[0] = {}): Promise<EnvironmentServer> {
  const server = await startCounterServer(options);
  servers.push(server);
  return server;
}

function connect(url: string, options: Partial<OpenEnvOptions> = {}): EnvironmentBackend {
  const backend = createOpenEnvBackend({ url, gradingToken: token, maxSessions: 8, ...options });
  backends.push(backend);
  return backend;
}

const open = (backend: EnvironmentBackend, number = 2, tryNumber = 0, signal = quiet) =>
  backend.open(counterTask(number), { seed: 7, episodeId: 'ep', tryNumber }, signal);
/** Counts turns, because a call with the same turn and try counts as a repeated call. */
const turns = new WeakMap<Environment, number>();
function call(env: Environment, name = 'increment', turn = turns.get(env) ?? 0, tryNumber = 0) {
  turns.set(env, turn + 1);
  return env.callTool({ name, arguments: {} }, { turn, tryNumber });
}
const grade = (env: Environment) => env.grade({ finalAnswer: 'two', tryNumber: 0 });

async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error('the condition did not come true within 5 s');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

describe('an episode', () => {
  it('opens, calls, is graded and closes', async () => {
    const backend = connect((await serve()).url);
    const env = await open(backend);
    expect(env.tools.map(({ name }) => name)).toEqual(['increment', 'refuse', 'crash', 'shout']);
    expect(await call(env)).toEqual(textResult('1'));
    expect(await call(env, 'refuse')).toEqual(textResult('repository x not found', true));
    expect(await call(env, 'jump')).toEqual(textResult('unknown tool jump', true));
    expect(await call(env)).toEqual(textResult('2'));
    expect(await grade(env)).toEqual({
      outcome: { status: 'graded', value: 1 },
      explanation: 'counted to 2; answered "two"',
    });
    await env.close();
    await expect(call(env)).rejects.toThrow('it can only be closed');
  });

  it('uses the socket of the episode before, and asks for the tools only once', async () => {
    const server = await serve();
    const backend = connect(server.url);
    for (let episode = 0; episode < 5; episode++) {
      const env = await open(backend);
      expect(await call(env)).toEqual(textResult('1'));
      await env.close();
    }
    expect(server.stats()).toMatchObject({ sessions: 1, requests: 5 * 2 + 3 });
  });

  it('gives the places of its idle sessions to other clients when it is told to', async () => {
    const { url } = await serve({ maxSessions: 1 });
    const [own, other] = [connect(url), connect(url, { callTimeoutMs: 300 })];
    await (await open(own)).close();
    await expect(open(other)).rejects.toMatchObject({ kind: 'unavailable', reason: 'capacity' });
    await own.releaseIdle?.();
    await (await open(other)).close();
  });

  it('waits for a free place, first come, first served', async () => {
    const backend = connect((await serve()).url, { maxSessions: 1 });
    const first = await open(backend);
    const order: number[] = [];
    const others = [1, 2].map(async (number) => {
      const env = await open(backend);
      order.push(number);
      await env.close();
    });
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(order).toEqual([]);
    await first.close();
    await Promise.all(others);
    expect(order).toEqual([1, 2]);
  });

  it('that is aborted while it waits leaves its place to other episodes', async () => {
    const backend = connect((await serve()).url, { maxSessions: 1 });
    const first = await open(backend);
    const stop = new AbortController();
    const second = open(backend, 2, 0, stop.signal);
    stop.abort(new Error('the run is paused'));
    await expect(second).rejects.toThrow('the run is paused');
    await first.close();
    await (await open(backend)).close();
  });

  it('gets ten megabytes of output truncated, or completely from a server with a higher limit', async () => {
    const env = await open(connect((await serve()).url));
    expect(contentText((await call(env, 'shout')).content)).toMatch(
      /^x{100000}\n\[cut: 10000000 characters, the first 100000 are shown\]$/,
    );
    await env.close();
    const generous = await open(connect((await serve({ maxOutputChars: 20_000_000 })).url));
    expect(contentText((await call(generous, 'shout')).content)).toHaveLength(10_000_000);
    await generous.close();
  });
});

describe('grading without the extension', () => {
  it('gives no grade if the observations have no reward', async () => {
    const backend = createOpenEnvBackend({ url: (await serve()).url, maxSessions: 1 });
    backends.push(backend);
    const env = await open(backend);
    await expect(grade(env)).rejects.toMatchObject({
      kind: 'failed',
      reason: 'grade',
      message: expect.stringMatching(/no reward and no grade; set grading_token_env/),
    });
    await env.close();
  });

  it.each([
    ['0.1', 1, 10],
    ['0.7', 2.1, 3],
    ['0.699999988079071', 2.1, 3],
  ])(
    'gives full reward for steps of %s with success_at %d after %d calls, and not before',
    async (...row) => {
      const [reward, success_at, calls] = row;
      const foreign = await startForeignServer(() => reward);
      const backend = createOpenEnvBackend({ url: foreign.url, maxSessions: 1, reward: 'sum', success_at });
      const env = await open(backend);
      for (let made = 1; made < calls; made++) await call(env, 'look');
      const before = (await grade(env)).outcome.value;
      expect(isPass(before)).toBe(false);
      await call(env, 'look');
      expect((await grade(env)).outcome.value).toBe(1);
      await env.close();
      await backend.close();
      await foreign.close();
    },
  );

  it('reports a wrong token when the episode opens', async () => {
    const backend = connect((await serve()).url, { gradingToken: 'wrong' });
    await expect(open(backend)).rejects.toMatchObject({
      kind: 'failed',
      reason: 'open',
      message: expect.stringMatching(/grading token is wrong/),
    });
  });
});

describe('failures', () => {
  it('of a healthy server are charged: open, call, grade', async () => {
    const server = await serve();
    const backend = connect(server.url);
    await expect(
      backend.open(
        { ...counterTask(1), task_key: 'none/1' },
        { seed: 1, episodeId: 'e', tryNumber: 0 },
        quiet,
      ),
    ).rejects.toMatchObject({
      kind: 'failed',
      reason: 'open',
      message: expect.stringMatching(/no app of this server/),
    });
    const env = await open(backend);
    await expect(call(env, 'crash')).rejects.toMatchObject({
      kind: 'failed',
      reason: 'call',
      message: expect.stringMatching(/no column n/),
    });
    await env.close();
    // Requests and replies still match, so the same socket serves the next episode.
    await (await open(backend)).close();
    expect(server.stats().sessions).toBe(1);
  });

  it('of a full server do not count if a place becomes free in time', async () => {
    const server = await serve({ maxSessions: 1 });
    const holder = await open(connect(server.url));
    const patient = open(connect(server.url));
    const hasty = open(connect(server.url, { callTimeoutMs: 120 }));
    await expect(hasty).rejects.toMatchObject({ kind: 'unavailable', reason: 'capacity' });
    await backends[0]!.close();
    await holder.close();
    await (await patient).close();
  });

  it.each<[InfrastructureFault, string, string]>([
    ['error', 'failed', 'call'],
    ['drop', 'unavailable', 'socket_lost'],
    ['hang', 'failed', 'timeout'],
  ])('injected as %s appear as %s/%s in that try of that turn only', async (fault, kind, reason) => {
    const server = await serve({
      faultRate: 0.5,
      faults: {
        toolError: () => undefined,
        infrastructure: (key) =>
          key.turn === 3 && key.try === 1 && key.seed === 7 && key.rate === 0.5 ? fault : undefined,
      },
    });
    const backend = connect(server.url, { callTimeoutMs: 300 });
    const env = await open(backend);
    expect(await call(env, 'increment', 3, 0)).toEqual(textResult('1'));
    await expect(call(env, 'increment', 3, 1)).rejects.toMatchObject({ kind, reason });
    await env.close();
    const again = await open(backend);
    expect(await call(again, 'increment', 3, 2)).toEqual(textResult('1'));
    await again.close();
    expect(server.stats().faults).toEqual({ [fault]: 1 });
  });

  it("are injected at the rates that the token's holder requests", async () => {
    const rates: number[] = [];
    const server = await serve({
      faults: {
        toolError: ({ rate }) => (rates.push(rate), undefined),
        infrastructure: ({ rate }) => (rates.push(rate), undefined),
      },
    });
    const env = await open(withFaults(connect(server.url), { fault_rate: 0.25, tool_error_rate: 0.5 }));
    await call(env);
    expect(new Set(rates)).toEqual(new Set([0.25, 0.5]));
    await env.close();
  });

  it('injected as tool errors are results, which the model sees', async () => {
    const server = await serve({
      toolErrorRate: 1,
      faults: {
        toolError: ({ turn }) => (turn === 1 ? 'busy, try again' : undefined),
        infrastructure: () => undefined,
      },
    });
    const env = await open(connect(server.url));
    expect(await call(env, 'increment', 0)).toEqual(textResult('1'));
    expect(await call(env, 'increment', 1)).toEqual(textResult('busy, try again', true));
    expect(await call(env, 'increment', 2)).toEqual(textResult('2'));
    await env.close();
  });
});

describe('a server that is down', () => {
  it('is unavailable at the start; the breaker opens, and closes when the server is there', async () => {
    const placeholder = await startCounterServer();
    const { url } = placeholder;
    await placeholder.close();
    const backend = connect(url);
    for (let loss = 0; loss < 5; loss++) {
      await expect(open(backend)).rejects.toMatchObject({ kind: 'unavailable', reason: 'connect' });
    }
    expect(await backend.healthy()).toBe(false);
    await expect(open(backend)).rejects.toThrow(/the environment server http:\S+ is down/);

    const server = await serve({ port: Number(new URL(url).port) });
    await vi.waitFor(async () => expect(await backend.healthy()).toBe(true), { timeout: 120_000 });
    await (await open(backend)).close();
    expect(server.stats().sessions).toBe(1);
  });

  it('gets one poll for all episodes, however many wait for it', async () => {
    let polls = 0;
    const http = createServer((_, response) => {
      polls += 1;
      response.end('{"status":"healthy"}');
    });
    http.listen(0, '127.0.0.1');
    await once(http, 'listening');
    const backend = connect(`http://127.0.0.1:${(http.address() as AddressInfo).port}`);
    const answers = await Promise.all(Array.from({ length: 256 }, () => backend.healthy()));
    expect(new Set(answers)).toEqual(new Set([true]));
    expect(polls).toBe(1);
    http.closeAllConnections();
    http.close();
    await once(http, 'close');
  });

  it('makes the calls in flight unavailable, and no episode continues in another world', async () => {
    const server = await serve();
    const backend = connect(server.url);
    const env = await open(backend);
    await call(env);
    await server.close();
    await serve({ port: Number(new URL(server.url).port) });
    await expect(call(env)).rejects.toMatchObject({ kind: 'unavailable', reason: 'socket_lost' });
    await env.close();
    const next = await open(backend);
    expect(await call(next)).toEqual(textResult('1'));
    await next.close();
  });

  it('does not fail an episode that would have used an idle socket', async () => {
    const server = await serve();
    const backend = connect(server.url);
    await (await open(backend)).close();
    await server.close();
    await serve({ port: Number(new URL(server.url).port) });
    await (await open(backend)).close();
  });
});

describe('a server that breaks the protocol', () => {
  const http = createServer((_, response) => response.end('{"status":"healthy"}'));
  const sockets = new WebSocketServer({ server: http });
  let answer = '';
  let url = '';
  beforeAll(async () => {
    http.listen(0, '127.0.0.1');
    await once(http, 'listening');
    url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
    sockets.on('connection', (socket) => socket.on('message', () => socket.send(answer)));
  });
  afterAll(async () => {
    sockets.clients.forEach((client) => client.terminate());
    http.close();
    await once(http, 'close');
  });

  it.each(['{', '{"type":"observation"}', '{"type":"observation","data":[]}'])(
    '%s: the socket is lost',
    async (text) => {
      answer = text;
      await expect(open(connect(url))).rejects.toMatchObject({ kind: 'unavailable', reason: 'socket_lost' });
    },
  );

  it.each(['[]', '3', 'ping', '{"data":{}}', '{"type":"result","data":{}}'])(
    '%s is no answer, and the error says so',
    async (text) => {
      answer = text;
      await expect(open(connect(url, { callTimeoutMs: 200 }))).rejects.toMatchObject({
        ...{ kind: 'failed', reason: 'timeout' },
        message: expect.stringContaining(
          `within 200 ms: it sent 1 frame that is no observation frame, last ${text}`,
        ),
      });
    },
  );
});

describe('many episodes', () => {
  it('report that they wait if there is only one place, and nothing if there are enough places', async () => {
    const waits = async (maxSessions: number): Promise<string[]> => {
      const backend = connect((await serve({ maxSessions })).url, { maxSessions: 400 });
      const said = new Set<string>();
      await Promise.all(
        Array.from({ length: 32 }, async (_, number) => {
          const opening = { seed: 7, episodeId: `ep${number}`, tryNumber: 0 };
          const onWait = (reason: string) => said.add(reason);
          const env = await backend.open(counterTask(1), { ...opening, onWait }, quiet);
          await env.close();
        }),
      );
      return [...said].filter((reason) => !reason.startsWith('other sessions hold its places'));
    };
    expect(await waits(1)).toEqual([
      'it plays 1 episode at a time, so the others wait: raise max_concurrent_envs of the server, or max_sessions if the spec sets it',
    ]);
    expect(await waits(32)).toEqual([]);
  });

  it('say that other sessions hold the places', async () => {
    const { url } = await serve({ maxSessions: 1 });
    const holder = await open(connect(url));
    const said: string[] = [];
    const opening = { seed: 7, episodeId: 'ep', tryNumber: 0, onWait: (reason: string) => said.push(reason) };
    const hasty = connect(url, { callTimeoutMs: 300 }).open(counterTask(1), opening, quiet);
    await expect(hasty).rejects.toMatchObject({ kind: 'unavailable', reason: 'capacity' });
    expect(said[0]).toMatch(/^other sessions hold its places: http/);
    await holder.close();
  });

  it('256 at once leave no session and no world open', async () => {
    const server = await serve();
    const backend = connect(server.url, { maxSessions: 256 });
    const values = await Promise.all(
      Array.from({ length: 512 }, async () => {
        const env = await open(backend, 1);
        await call(env);
        const { outcome } = await grade(env);
        await env.close();
        return outcome.value;
      }),
    );
    expect(values.every((value) => value === 1)).toBe(true);
    expect(server.stats().sessions).toBeLessThanOrEqual(256);
    await backend.close();
    await until(() => server.stats().sessions === 0);
    expect(worlds.open).toBe(0);
  });
});
