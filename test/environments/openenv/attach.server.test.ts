// A world that outlives its client: another process can continue in it, and in no other world.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type {
  Environment,
  EnvironmentBackend,
  SessionReference,
} from '../../../src/environments/environment.js';
import { createOpenEnvBackend } from '../../../src/environments/openenv/openenv-backend.js';
import { textResult } from '../../../src/environments/tool-results.js';
import type { FaultSource } from '../../../examples/apps/server/app-session.js';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { startTcpProxy, type TcpProxy } from '../../support/servers/tcp-proxy.js';
import { until } from '../../support/until.js';
import { counterTask, noFaults, startCounterServer, token, worlds } from '../stand-in.js';

const quiet = new AbortController().signal;
const task = counterTask(2);

let carriedOut: number[];
const faults: FaultSource = { ...noFaults, infrastructure: ({ turn }) => (carriedOut.push(turn), undefined) };

let server: EnvironmentServer;
let proxy: TcpProxy;
/** Reaches the server through the proxy, so that its sockets can be lost as if its process had died. */
let dying: EnvironmentBackend;
let successor: EnvironmentBackend;
beforeEach(async () => {
  carriedOut = [];
  server = await startCounterServer({ faults, faultRate: 0.5 });
  proxy = await startTcpProxy(new URL(server.url).host);
  dying = connect(proxy.url);
  successor = connect(server.url);
});
afterEach(async () => {
  await dying.close();
  await successor.close();
  await proxy.stop();
  await server.close();
});

const connect = (url: string) => createOpenEnvBackend({ url, gradingToken: token, maxSessions: 2 });
const open = (backend: EnvironmentBackend) =>
  backend.open(task, { seed: 7, episodeId: 'ep', tryNumber: 0 }, quiet);
const call = (env: Environment, turn: number) =>
  env.callTool({ name: 'increment', arguments: {} }, { turn, tryNumber: 0 });
const grade = (env: Environment) => env.grade({ finalAnswer: 'two', tryNumber: 0 });
const count = (number: number) => textResult(String(number));
const attach = (session: SessionReference, calls: number, backend = successor) =>
  backend.attach!(task, session, calls, quiet);

/** Cuts the client's sockets, and waits until the server has noticed. */
async function orphan(env: Environment): Promise<SessionReference> {
  const { url, ...session } = env.session!;
  expect(url).toBe(proxy.url);
  proxy.mode = 'refuse';
  await until(async () => (await sessions()).attached === 0, 'the server to see the loss');
  return { ...session, url: server.url };
}

async function sessions(): Promise<{ attached: number; sessions: number }> {
  return (await (await fetch(`${server.url}/x/sessions`)).json()) as { attached: number; sessions: number };
}

describe('a world whose client died', () => {
  it('continues under another client after its last call', async () => {
    const env = await open(dying);
    await call(env, 0);
    const session = await orphan(env);
    const opened = worlds.opened;
    const attached = (await attach(session, 1))!;
    expect(attached.tools.map(({ name }) => name)).toContain('increment');
    expect(attached.session).toEqual(session);
    expect(await call(attached, 1)).toEqual(count(2));
    expect((await grade(attached)).outcome).toEqual({ status: 'graded', value: 1 });
    await attached.close();
    expect(worlds.opened).toBe(opened);
  });

  it('answers a repeated call and runs the call once, whether or not the first reply had arrived', async () => {
    const env = await open(dying);
    await call(env, 0);
    const answered = await orphan(env);
    const first = (await attach(answered, 1))!;
    expect(await call(first, 0)).toEqual(count(1));
    expect(carriedOut.filter((turn) => turn === 0)).toHaveLength(1);
    // The server never received a call that was noted but not sent.
    expect(await call(first, 1)).toEqual(count(2));
    await first.close();
  });

  it('answers a repeated grade', async () => {
    const env = await open(dying);
    await call(env, 0);
    await call(env, 1);
    const given = await grade(env);
    const attached = (await attach(await orphan(env), 2))!;
    expect(await grade(attached)).toEqual(given);
    expect(carriedOut.filter((turn) => turn === -2)).toHaveLength(1);
    await attached.close();
  });

  it('serves the next episode after a reset, as any session does', async () => {
    const env = await open(dying);
    await call(env, 0);
    const attached = (await attach(await orphan(env), 1))!;
    await attached.close();
    const opened = worlds.opened;
    const next = await open(successor);
    expect(worlds.opened).toBe(opened + 1);
    expect(next.session?.id).toBe(env.session?.id);
    expect(await call(next, 0)).toEqual(count(1));
    await next.close();
  });
});

describe('attaching finds no world', () => {
  it('that has ended with its server', async () => {
    const env = await open(dying);
    const session = await orphan(env);
    await server.close();
    server = await startCounterServer({ port: Number(new URL(session.url).port) });
    expect(await attach(session, 0)).toBeNull();
  });

  it('if nobody listens: opening waits for the server, attaching does not', async () => {
    const session = await orphan(await open(dying));
    await server.close();
    expect(await attach(session, 0)).toBeNull();
  });

  it('that is on another server', async () => {
    const session = await orphan(await open(dying));
    expect(await attach({ ...session, url: 'http://127.0.0.1:1' }, 0)).toBeNull();
  });

  it('whose client is alive, and that client continues', async () => {
    const env = await open(dying);
    expect(await attach({ ...env.session!, url: server.url }, 0)).toBeNull();
    expect(await call(env, 0)).toEqual(count(1));
    await env.close();
  });

  it('if the session has another world by now, and that world stays', async () => {
    const first = await open(dying);
    await call(first, 0);
    const before = first.session!;
    await first.close();
    const second = await open(dying);
    expect(second.session).toMatchObject({ id: before.id });
    expect(second.session?.world).not.toBe(before.world);
    await call(second, 0);
    const session = await orphan(second);
    expect(await attach({ ...session, world: before.world }, 1)).toBeNull();
    await until(async () => (await sessions()).attached === 0, 'the session to be free');
    const attached = (await attach(session, 1))!;
    expect(await call(attached, 1)).toEqual(count(2));
    await attached.close();
  });

  it('that has received more calls than are known, and its place is freed', async () => {
    const env = await open(dying);
    for (const turn of [0, 1, 2]) await call(env, turn);
    const session = await orphan(env);
    expect(await attach(session, 1)).toBeNull();
    await until(async () => (await sessions()).sessions === 0, 'the session to end');
    expect(worlds.open).toBe(0);
  });

  it('and loses no place: the server still opens as many sessions as it allows', async () => {
    const session = await orphan(await open(dying));
    for (let i = 0; i < 4; i++) expect(await attach({ ...session, id: `none-${i}` }, 0)).toBeNull();
    const both = await Promise.all([open(successor), open(successor)]);
    await Promise.all(both.map((env) => env.close()));
  });
});
