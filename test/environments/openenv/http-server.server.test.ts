// A server without sockets: which of its answers are mistakes of the spec, of the server, or of the model.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { refuseUnplayable } from '../../../src/data/environment-check.js';
import type { Environment, EnvironmentBackend } from '../../../src/environments/environment.js';
import {
  createOpenEnvBackend,
  type OpenEnvOptions,
} from '../../../src/environments/openenv/openenv-backend.js';
import { textResult } from '../../../src/environments/tool-results.js';
import { environmentBackends } from '../../../src/workers/node/environment-backends.js';
import { type HttpWorld, startHttpWorld } from '../http-world.js';
import { counterTask } from '../stand-in.js';

const quiet = new AbortController().signal;
const closers: (() => Promise<void>)[] = [];
let world: HttpWorld;
beforeEach(async () => {
  world = await start();
});
afterEach(async () => {
  vi.unstubAllEnvs();
  for (const close of closers.splice(0).reverse()) await close();
});

async function start(routes?: string[]): Promise<HttpWorld> {
  const started = await startHttpWorld(routes);
  closers.push(() => started.close());
  return started;
}

function connect(options: Partial<OpenEnvOptions> = {}): EnvironmentBackend {
  const backend = createOpenEnvBackend({ url: world.url, maxSessions: 8, ...options });
  closers.push(() => backend.close());
  return backend;
}

const open = (backend: EnvironmentBackend, goal = 2) =>
  backend.open({ ...counterTask(goal), reset: { goal } }, { seed: 7, episodeId: 'ep', tryNumber: 0 }, quiet);
const act = (env: Environment, by: unknown) =>
  env.callTool({ name: 'act', arguments: { by } }, { turn: 0, tryNumber: 0 });

const specOf = (url: string, change: object = {}) => ({
  ...{ env_key: 'counter', url },
  ...change,
});

describe('a server without sockets', () => {
  it('plays one episode at a time', async () => {
    const backend = connect();
    const first = await open(backend);
    let isOpen = false;
    const second = open(backend).then((env) => ((isOpen = true), env));
    await act(first, 1);
    expect(isOpen).toBe(false);
    expect(await act(first, 1)).toMatchObject({ ...textResult('2'), ends: true });
    await first.close();
    await (await second).close();
  });

  it('that is busy or behind a proxy without it is waited for; its own exception is charged', async () => {
    const backend = connect();
    for (const [status, kind] of [
      [429, 'unavailable'],
      [502, 'unavailable'],
      [503, 'unavailable'],
      [500, 'failed'],
    ] as const) {
      const env = await open(backend);
      world.answer = (path) => (path === '/step' ? { status, body: { detail: 'no' } } : null);
      await expect(act(env, 1)).rejects.toMatchObject({ kind });
      world.answer = () => null;
      await env.close();
    }
  });

  it('that is busy at the reset costs an episode nothing', async () => {
    const backend = connect();
    world.answer = (path) => (path === '/reset' ? { status: 429, body: { detail: 'later' } } : null);
    await expect(open(backend)).rejects.toMatchObject({ kind: 'unavailable', reason: 'connect' });
  });

  it('never grades an episode whose world another client has reset', async () => {
    const env = await open(connect());
    await act(env, 1);
    await fetch(`${world.url}/reset`, { method: 'POST', body: '{"episode_id":"other","goal":1}' });
    await expect(act(env, 1)).rejects.toMatchObject({ kind: 'failed', reason: 'world' });
    await expect(env.grade({ finalAnswer: '', tryNumber: 0 })).rejects.toThrow('it can only be closed');
    await env.close();
  });

  it.each([
    ['keeps no world between requests', { episode_id: null, step_count: 0 }],
    ['keeps no world between requests, and names each', { episode_id: 'fresh', step_count: 0 }],
    ['shows no world', {}],
    ['went on with a step that had timed out', { episode_id: 'ep', step_count: 2 }],
  ])('that %s is refused at the first step', async (_, state) => {
    const env = await open(connect());
    world.answer = (path) => (path === '/state' ? { status: 200, body: state } : null);
    await expect(act(env, 1)).rejects.toMatchObject({ kind: 'failed', reason: 'world' });
    await env.close();
  });

  it.each([
    ['counts no steps', { episode_id: 'ep', step_count: 0 }],
    ['names no episode', { step_count: 1 }],
  ])('that %s is played', async (_, state) => {
    const env = await open(connect());
    world.answer = (path) => (path === '/state' ? { status: 200, body: state } : null);
    expect(await act(env, 1)).toMatchObject(textResult('1'));
    await env.close();
  });

  it('shows the model what is wrong with its action', async () => {
    const env = await open(connect());
    world.answer = () => ({
      status: 422,
      body: { detail: [{ loc: ['body', 'action', 'by'], msg: 'not an integer', url: 'https://x' }] },
    });
    expect(await act(env, 'one')).toEqual(textResult('by: not an integer', true));
    world.answer = () => null;
    expect(await act(env, 2)).toMatchObject({ ends: true });
  });

  it('gets the headers of the spec, and no message repeats them', async () => {
    vi.stubEnv('WORLD_HEADERS', 'X-Key: abc-secret-key\nAuthorization: Bearer the-secret-token\n');
    const backends = environmentBackends({ url: null });
    closers.push(() => backends.close());
    const backend = backends.backendFor(specOf(world.url, { headers_env: 'WORLD_HEADERS' }), 5_000);
    const env = await open(backend);
    expect(world.headers).toMatchObject({
      ...{ 'x-key': 'abc-secret-key', authorization: 'Bearer the-secret-token' },
    });
    world.answer = () => ({ status: 500, body: { detail: 'bad key abc-secret-key' } });
    await expect(act(env, 1)).rejects.toThrow(/bad key (?!abc-secret-key)/);
    await env.close();
    world.answer = () => ({ status: 500, body: { detail: 'bad token the-secret-token' } });
    await expect(open(backend)).rejects.toThrow(/bad token (?!the-secret-token)/);
  });

  it.each([
    ['', 'is not set here'],
    ['just-a-token', 'is not of the form "Name: value"'],
  ])('is not asked with the headers %j', (headers, problem) => {
    vi.stubEnv('WORLD_HEADERS', headers);
    const backends = environmentBackends({ url: null });
    closers.push(() => backends.close());
    expect(() => backends.backendFor(specOf(world.url, { headers_env: 'WORLD_HEADERS' }), 5_000)).toThrow(
      problem,
    );
  });
});

describe('a run is refused at its start', () => {
  const problems = (change: object = {}, url = world.url) =>
    refuseUnplayable([specOf(url, change)]).then(
      () => null,
      (error: Error) => error.message,
    );

  it('by a server that is none of OpenEnv', async () => {
    const other = await start(['/health']);
    expect(await problems({}, other.url)).toMatch(/environments\[0\].*neither \/ws nor \/step/s);
  });

  it('by a web application, which answers every path with its page', async () => {
    const application = createServer((_, response) => {
      response.setHeader('content-type', 'text/html');
      response.end('<!DOCTYPE html>\n<html><body>Web UI</body></html>');
    });
    await once(application.listen(0, '127.0.0.1'), 'listening');
    const { port } = application.address() as AddressInfo;
    closers.push(async () => {
      application.closeAllConnections();
      await once(application.close(), 'close');
    });
    const url = `http://127.0.0.1:${port}`;
    const said = `${url} is no OpenEnv server: its /schema is a web page; check host and port`;
    expect(await problems({}, url)).toContain(said);
  });

  it('by a server that does not say what its actions are, unless the spec does', async () => {
    const silent = await start(['/health', '/reset', '/step']);
    expect(await problems({}, silent.url)).toContain('set environments[].contract to mcp or gym');
    expect(await problems({ contract: 'gym' }, silent.url)).toBeNull();
  });

  it('by a server that wants a key', async () => {
    world.answer = () => ({ status: 401, body: { detail: 'no key' } });
    expect(await problems()).toContain('headers_env');
  });

  it('but not by one that is away, or starting', async () => {
    expect(await problems({}, 'http://127.0.0.1:9')).toBeNull();
    world.answer = () => ({ status: 503, body: {} });
    expect(await problems()).toBeNull();
    world.answer = () => null;
    expect(await problems()).toBeNull();
  });
});
