// A socket that is lost in the middle of an episode: if the server keeps its session, the episode continues.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import type { Environment, EnvironmentBackend } from '../../../src/environments/environment.js';
import { createOpenEnvBackend } from '../../../src/environments/openenv/openenv-backend.js';
import { textResult } from '../../../src/environments/tool-results.js';
import type { FaultSource } from '../../../examples/apps/server/app-session.js';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { loadChatTemplate } from '../../../src/episode/chat-template.js';
import { playEpisode } from '../../../src/episode/episode-loop.js';
import { loadTokenizer } from '../../../src/episode/tokenizer.js';
import { hermes, sampling } from '../../episode/fixtures.js';
import { scriptedPolicy } from '../../episode/scripted-policy.js';
import { startTcpProxy, type TcpProxy } from '../../support/servers/tcp-proxy.js';
import { until } from '../../support/until.js';
import { counterTask, noFaults, startCounterServer, token, worlds } from '../stand-in.js';

const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json'));
const template = loadChatTemplate(
  readFileSync('presets/tokenizers/small/chat_template.jinja', 'utf8'),
  tokenizer,
);
const increment = '<tool_call>{"name":"increment","arguments":{}}</tool_call>';
const quiet = new AbortController().signal;

/** The turn of each request that the server carried out: it asks for a fault once for each request. */
let carriedOut: number[];
const faults: FaultSource = { ...noFaults, infrastructure: ({ turn }) => (carriedOut.push(turn), undefined) };

let server: EnvironmentServer;
let proxy: TcpProxy;
let backend: EnvironmentBackend;
beforeEach(async () => {
  carriedOut = [];
  server = await startCounterServer({ faults, faultRate: 0.5 });
  proxy = await startTcpProxy(new URL(server.url).host);
  backend = connect(proxy.url);
});
afterEach(async () => {
  await backend.close();
  await proxy.stop();
  await server.close();
});

function connect(url: string, callTimeoutMs = 60_000): EnvironmentBackend {
  return createOpenEnvBackend({ url, gradingToken: token, maxSessions: 8, callTimeoutMs });
}

const open = (signal = quiet) =>
  backend.open(counterTask(2), { seed: 7, episodeId: 'ep', tryNumber: 0 }, signal);
const call = (env: Environment, turn: number) =>
  env.callTool({ name: 'increment', arguments: {} }, { turn, tryNumber: 0 });
const grade = (env: Environment) => env.grade({ finalAnswer: 'two', tryNumber: 0 });
const passed = { outcome: { status: 'graded', value: 1 }, explanation: 'counted to 2; answered "two"' };
const count = (number: number) => textResult(String(number));
/** The requests of one episode. A backend's first episode resets twice, because it asks for the tools in between. */
const oneEpisode = [-1, -1, 0, 1, -2];

async function loseReplyTo<T>(request: () => Promise<T>): Promise<T> {
  const lost = proxy.loseNextReply();
  const answer = request();
  await lost;
  return answer;
}

describe('an episode whose socket is lost', () => {
  it('between a call and its reply gets that reply, and the call runs once', async () => {
    const env = await open();
    expect(await loseReplyTo(() => call(env, 0))).toEqual(count(1));
    expect(await loseReplyTo(() => call(env, 1))).toEqual(count(2));
    expect(await loseReplyTo(() => grade(env))).toEqual(passed);
    expect(carriedOut).toEqual(oneEpisode);
    await env.close();
  });

  it('between a reset and its reply opens only one world', async () => {
    await (await open()).close();
    carriedOut = [];
    const env = await loseReplyTo(open);
    expect(carriedOut).toEqual([-1]);
    expect(await call(env, 0)).toEqual(count(1));
    await env.close();
    expect(worlds.open).toBe(1);
  });

  it('while the policy thinks continues in the same world', async () => {
    const env = await open();
    await call(env, 0);
    proxy.breakAll();
    expect(await call(env, 1)).toEqual(count(2));
    expect(await grade(env)).toEqual(passed);
    expect(carriedOut).toEqual(oneEpisode);
    await env.close();
  });

  it('waits while the network is down for a moment', async () => {
    const env = await open();
    await call(env, 0);
    proxy.mode = 'refuse';
    const second = call(env, 1);
    setTimeout(() => (proxy.mode = 'pass'), 200);
    expect(await second).toEqual(count(2));
    await env.close();
  });

  it('several times continues each time', async () => {
    const env = await open();
    for (let turn = 0; turn < 10; turn++)
      expect(await loseReplyTo(() => call(env, turn))).toEqual(count(turn + 1));
    await env.close();
  });

  it('is lost if the server has restarted, as on any server', async () => {
    const env = await open();
    await call(env, 0);
    await server.close();
    server = await startCounterServer({ port: Number(new URL(server.url).port) });
    await expect(call(env, 1)).rejects.toMatchObject({ kind: 'unavailable', reason: 'socket_lost' });
    await env.close();
  });

  it('together with the server is lost at once, because nobody listens', async () => {
    const direct = connect(server.url);
    const env = await direct.open(counterTask(2), { seed: 7, episodeId: 'ep', tryNumber: 0 }, quiet);
    const start = performance.now();
    await server.close();
    await expect(call(env, 0)).rejects.toMatchObject({ kind: 'unavailable', reason: 'socket_lost' });
    expect(performance.now() - start).toBeLessThan(10_000);
    await env.close();
    await direct.close();
  });

  it('by an injected fault is lost, because the fault imitates the server’s death', async () => {
    const dropping = await startCounterServer({
      faultRate: 0.5,
      faults: { ...noFaults, infrastructure: ({ turn }) => (turn === 1 ? 'drop' : undefined) },
    });
    const direct = connect(dropping.url);
    const env = await direct.open(counterTask(2), { seed: 7, episodeId: 'ep', tryNumber: 0 }, quiet);
    await call(env, 0);
    await expect(call(env, 1)).rejects.toMatchObject({ kind: 'unavailable', reason: 'socket_lost' });
    expect(dropping.stats()).toMatchObject({ sessions: 0, faults: { drop: 1 } });
    await env.close();
    await direct.close();
    await dropping.close();
  });
});

describe('the loop of an episode', () => {
  it('continues from call to call while each reply is lost: it plays once, samples each turn once, and counts no failure', async () => {
    const turns = [increment, increment, '<done>'];
    const policy = scriptedPolicy(tokenizer, turns);
    const worldsBefore = worlds.opened;
    const play = (using: EnvironmentBackend, interrupted: boolean) =>
      playEpisode(
        {
          ...{ backend: using, tokenizer, template, ...hermes },
          engine: {
            async generate(request, signal) {
              const answer = await policy.generate(request, signal);
              if (interrupted) void proxy.loseNextReply();
              return answer;
            },
          },
        },
        {
          ...{ task: counterTask(2), sampling, state: 'a'.repeat(64), policyStep: 0 },
          key: { seed: 1, domain: 'train', step: 1, slot: 0, sample: 0 },
          ...{ episodeSeed: 7, episodeId: 'ep', maxWaitMs: 5000 },
        },
        AbortSignal.timeout(15_000),
      );
    const undisturbed = await play(backend, false);
    const disturbed = await play(backend, true);
    expect(disturbed).toEqual(undisturbed);
    expect(disturbed).toMatchObject({ outcome: { status: 'graded', value: 1 }, failures: {} });
    expect(policy.requests).toHaveLength(2 * turns.length);
    // The first episode resets twice, because it asks for the tools in between.
    expect(worlds.opened - worldsBefore).toBe(3);
  });
});

describe('an episode that is abandoned', () => {
  it('during a call leaves no session behind', async () => {
    const hanging = await startCounterServer({
      faultRate: 0.5,
      faults: { ...noFaults, infrastructure: ({ turn }) => (turn === 0 ? 'hang' : undefined) },
    });
    const direct = connect(hanging.url, 300);
    const env = await direct.open(counterTask(2), { seed: 7, episodeId: 'ep', tryNumber: 0 }, quiet);
    await expect(call(env, 0)).rejects.toMatchObject({ kind: 'failed', reason: 'timeout' });
    await until(() => hanging.stats().sessions === 0, 'the session to end', 5000);
    await env.close();
    await direct.close();
    await hanging.close();
  });

  it('while its socket is resumed ends when the signal aborts', async () => {
    await (await open()).close();
    const stop = new AbortController();
    const lost = proxy.loseNextReply();
    const opening = expect(open(stop.signal)).rejects.toThrow('the run is paused');
    await lost;
    proxy.mode = 'refuse';
    stop.abort(new Error('the run is paused'));
    await opening;
    proxy.mode = 'pass';
    await (await open()).close();
  });
});

/** Breaks each socket at its first tool call. `keepsSessions`: whether the handshake contains a session id. */
async function startBreakingServer(keepsSessions: boolean) {
  const http = createServer((_, response) => response.end('{"status":"healthy"}'));
  const sockets = new WebSocketServer({ server: http });
  const seen = { queries: [] as string[], calls: [] as unknown[] };
  if (keepsSessions) sockets.on('headers', (headers) => headers.push('X-Session-Id: s'));
  sockets.on('connection', (socket, request) => {
    seen.queries.push(request.url ?? '');
    socket.on('message', (message: Buffer) => {
      const { data } = JSON.parse(message.toString()) as { data: Record<string, unknown> };
      if (data.type === 'call_tool') {
        seen.calls.push(data.metadata);
        return socket.terminate();
      }
      const observation = data.type === 'list_tools' ? { tools: [{ name: 'increment' }] } : {};
      socket.send(JSON.stringify({ type: 'observation', data: { observation, reward: null, done: false } }));
    });
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  return {
    seen,
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    async close() {
      for (const client of sockets.clients) client.terminate();
      http.close();
      await once(http, 'close');
    },
  };
}

describe('a call during which every socket is lost', () => {
  it.each([
    ['on a server that keeps sessions fails when the fourth socket is lost', true, 4],
    [
      'on a server that keeps no sessions fails when its socket is lost, and contains no idempotency key',
      false,
      1,
    ],
  ])('%s', async (_, keepsSessions, sockets) => {
    const breaking = await startBreakingServer(keepsSessions);
    const direct = connect(breaking.url);
    const env = await direct.open(counterTask(2), { seed: 7, episodeId: 'ep', tryNumber: 0 }, quiet);
    await expect(call(env, 0)).rejects.toMatchObject({ kind: 'unavailable', reason: 'socket_lost' });
    const metadata = keepsSessions ? { turn: 0, try: 0, idempotency_key: 'call-0-0' } : { turn: 0, try: 0 };
    expect(breaking.seen.calls).toEqual(Array.from({ length: sockets }, () => metadata));
    expect(breaking.seen.queries).toEqual([
      '/ws?resumable=true',
      ...Array.from({ length: sockets - 1 }, () => '/ws?session_id=s&take_over=true'),
    ]);
    await env.close();
    await direct.close();
    await breaking.close();
  });
});
