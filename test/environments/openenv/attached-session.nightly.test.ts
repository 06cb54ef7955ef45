// Sessions that outlive their sockets, on stock servers: an episode goes on, no call is carried out twice, and no place is lost.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { refuseUnplayable } from '../../../src/data/environment-check.js';
import type { Environment, EnvironmentBackend } from '../../../src/environments/environment.js';
import { MadeSessions } from '../../../src/environments/openenv/made-sessions.js';
import { createOpenEnvBackend } from '../../../src/environments/openenv/openenv-backend.js';
import { textResult } from '../../../src/environments/tool-results.js';
import type { Task } from '../../../src/spec/records/task.js';
import { pythonWith } from '../../support/python/python-environments.js';
import { type OpenEnvFixture, startOpenEnvFixture } from '../../support/servers/openenv-fixture.js';
import { openRawSocket } from '../../support/servers/raw-socket.js';
import { startTcpProxy, type TcpProxy } from '../../support/servers/tcp-proxy.js';
import { counterTask } from '../stand-in.js';

const python = await pythonWith('openenv');
const oldPython = await pythonWith('openenv-core');

const task: Task = { ...counterTask(1), task_key: 'some/task', env_key: 'fixture' };
const quiet = new AbortController().signal;
const socketLost = { kind: 'unavailable', reason: 'socket_lost' };

describe.skipIf(!python)('a session on a server of one place', () => {
  let fixture: OpenEnvFixture;
  let proxy: TcpProxy;
  let folder: string;
  let backend: EnvironmentBackend;
  beforeAll(async () => {
    fixture = await startOpenEnvFixture(python, 1);
  });
  afterAll(() => fixture?.stop());
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'longhaul-sessions-'));
    proxy = await startTcpProxy(new URL(fixture.url).host);
    backend = backendOf(proxy.url);
  });
  afterEach(async () => {
    await backend.close();
    await proxy.stop();
    rmSync(folder, { recursive: true });
  });

  const backendOf = (url: string): EnvironmentBackend =>
    createOpenEnvBackend({
      ...{ url, maxSessions: 4, sessions: 'attached', callTimeoutMs: 20_000 },
      made: new MadeSessions(folder, () => undefined),
    });
  const open = (episodeId = 'ep'): Promise<Environment> =>
    backend.open(task, { seed: 7, episodeId, tryNumber: 0 }, quiet);
  let turn = 0;
  const call = (env: Environment, name = 'increment', args = {}) =>
    env.callTool({ name, arguments: args }, { turn: turn++, tryNumber: 0 });
  const isFull = async (): Promise<boolean> => {
    const socket = await openRawSocket(fixture.url);
    const { type } = await socket.ask({ type: 'state' });
    socket.socket.terminate();
    return type === 'error';
  };
  const untilFree = async (): Promise<void> => {
    while (await isFull()) await new Promise((resolve) => setTimeout(resolve, 100));
  };

  it('goes on after its socket was cut between two calls, and gives its place back', async () => {
    const env = await open();
    expect(await call(env)).toEqual(textResult('1'));
    proxy.mode = 'refuse';
    setTimeout(() => (proxy.mode = 'pass'), 300);
    expect(await call(env)).toEqual(textResult('2'));
    expect(await env.grade({ finalAnswer: '', tryNumber: 0 })).toMatchObject({ outcome: { value: 1 } });
    await env.close();
    await backend.close();
    expect(readdirSync(folder)).toEqual([]);
    await untilFree();
  });

  it('sends a call again that the server has not seen', async () => {
    const env = await open();
    expect(await call(env)).toEqual(textResult('1'));
    // Wait until the client has compared the count; else that request would be lost instead of the call.
    await new Promise((resolve) => setTimeout(resolve, 500));
    const lost = proxy.loseNextRequest();
    expect(await call(env)).toEqual(textResult('2'));
    await lost;
    expect(await call(env)).toEqual(textResult('3'));
    await env.close();
  });

  it('is given up after a call was carried out and its reply lost; another session begins in a fresh world', async () => {
    const env = await open();
    await call(env);
    await new Promise((resolve) => setTimeout(resolve, 500));
    const lost = proxy.loseNextReply();
    await expect(call(env)).rejects.toMatchObject(socketLost);
    await lost;
    await env.close();
    const next = await open('again');
    expect(await call(next)).toEqual(textResult('1'));
    await next.close();
  });

  it('is given up after a first call without an answer: a count of 0 says nothing', async () => {
    const env = await open();
    const lost = proxy.loseNextRequest();
    await expect(call(env)).rejects.toMatchObject(socketLost);
    await lost;
    await env.close();
    await untilFree();
  });

  it('waits for a call that still runs when its socket is cut', async () => {
    const env = await open();
    await call(env);
    const asked = call(env, 'slow', { seconds: 2 });
    asked.catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 500));
    proxy.breakAll();
    // It was carried out, so its answer is lost.
    await expect(asked).rejects.toMatchObject(socketLost);
    await env.close();
    await untilFree();
  });

  it('keeps others waiting until it is over', async () => {
    const env = await open();
    const second = open('second');
    expect(await Promise.race([second, new Promise((resolve) => setTimeout(resolve, 300, 'waits'))])).toBe(
      'waits',
    );
    await call(env);
    await env.close();
    expect(await call(await second)).toEqual(textResult('1'));
    await (await second).close();
  });

  it('of a killed node is closed by the next process on its folder', async () => {
    await call(await open());
    expect(readdirSync(folder)).toHaveLength(1);
    // The node's end, as the server sees it.
    await proxy.stop();
    expect(await isFull()).toBe(true);
    const moved = await startTcpProxy(new URL(fixture.url).host, { at: proxy.address });
    await new MadeSessions(folder, () => undefined).closeLeft(() => ({}));
    expect(readdirSync(folder)).toEqual([]);
    expect(await isFull()).toBe(false);
    await moved.stop();
  });
});

describe.skipIf(!oldPython)('a server that keeps no session', () => {
  it('is refused when a run starts that asks for it', async () => {
    const old = await startOpenEnvFixture(oldPython, 1);
    const environment = { env_key: 'fixture', url: old.url };
    await expect(refuseUnplayable([{ ...environment, sessions: 'attached' }])).rejects.toThrow(
      /keeps no session without its socket/,
    );
    await refuseUnplayable([environment]);
    await old.stop();
  });
});
