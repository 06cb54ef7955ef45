// Only this user can reach the embedded stack's servers and files: all servers listen on loopback only, and its folder is private.
import { createServer } from 'node:net';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { ClaimedPorts } from '../../src/stack/claimed-ports.js';
import { lockFolder } from '../../src/workers/process/folder-lock.js';
import { freePort } from '../../src/stack/free-port.js';
import { type Stack, startStack } from '../../src/stack/stack.js';
import { findEngine } from '../support/find-tools.js';
import { listenersOf, withDescendants } from '../support/servers/listeners.js';
import { until } from '../support/until.js';

const outer = mkdtempSync(join(tmpdir(), 'longhaul-exposure-'));
afterAll(() => rmSync(outer, { recursive: true }));
const othersMay = (path: string): number => statSync(path).mode & 0o077;

describe('the embedded stack', () => {
  const folder = join(outer, 'stack');
  let stack: Stack;
  beforeAll(async () => {
    const before = process.umask(0o022);
    stack = await startStack({
      folder,
      engine: findEngine(),
      scripts: {
        orchestrator: resolve('dist/workers/orchestrator-main.js'),
        node: resolve('dist/workers/node-main.js'),
        environments: [process.execPath, resolve('dist/examples/apps/server/main.js')],
        follower: resolve('dist/workers/follower-main.js'),
      },
      log: () => undefined,
      gaveUp: () => undefined,
      temporalPort: await freePort(),
      uiPort: await freePort(),
    });
    process.umask(before);
  });
  afterAll(() => stack?.stop());

  it.skipIf(process.platform !== 'linux')(
    'listens only on loopback, as does its engine (reads /proc of Linux)',
    async () => {
      const pids = (): number[] => withDescendants(stack.processes.flatMap(({ pid }) => pid ?? []));
      await until(() => pids().length > stack.processes.length, 'the engine to be started');
      const listeners = listenersOf(pids());
      for (const address of [
        stack.addresses.temporal,
        new URL(stack.addresses.ui).host,
        new URL(stack.addresses.environments!).host,
      ])
        expect(listeners.map((listener) => listener.address)).toContain(address);
      expect(listeners.filter(({ loopback }) => !loopback)).toEqual([]);
    },
  );

  it('keeps its files in a folder that other users cannot open', () => {
    expect(readdirSync(folder)).toContain('temporal.db');
    expect(othersMay(folder)).toBe(0);
    expect(othersMay(join(folder, 'grading-token'))).toBe(0);
  });
});

describe('this test’s search for listeners', () => {
  it.each(['0.0.0.0', '::'])('finds a listener on %s', async (host) => {
    const server = createServer();
    const listening = await new Promise<boolean>((done) => {
      server.once('error', () => done(false)).listen(0, host, () => done(true));
    });
    // The machine has no IPv6.
    if (!listening) return;
    const found = listenersOf([process.pid]).filter(({ loopback }) => !loopback);
    await new Promise((done) => server.close(done));
    expect(found).toHaveLength(1);
  });

  it('finds a listener on a Unix socket', async () => {
    const path = join(outer, 'socket');
    const server = createServer().listen(path);
    await new Promise((done) => server.once('listening', done));
    const found = listenersOf([process.pid]).map(({ address }) => address);
    await new Promise((done) => server.close(done));
    expect(found).toContain(path);
  });
});

describe('the folder of a worker', () => {
  it('is made private', () => {
    lockFolder(join(outer, 'deep', 'worker'), 'a test').release();
    for (const path of ['deep', 'deep/worker']) expect(othersMay(join(outer, path))).toBe(0);
  });
});

describe('the folder of claimed ports, which has a predictable name,', () => {
  const name = `longhaul-ports-${userInfo().uid}`;
  const temporary = (): string => {
    const folder = mkdtempSync(join(outer, 'tmp-'));
    vi.stubEnv('TMPDIR', folder);
    return folder;
  };
  afterAll(() => vi.unstubAllEnvs());
  const claim = () => new ClaimedPorts(() => undefined);

  it('is made private', () => {
    const folder = temporary();
    claim();
    expect(othersMay(join(folder, name))).toBe(0);
  });

  it('is not used if it is a symbolic link', () => {
    const folder = temporary();
    mkdirSync(join(folder, 'elsewhere'));
    symlinkSync(join(folder, 'elsewhere'), join(folder, name));
    expect(claim).toThrow(/is not a folder of this user alone; remove it, or set TMPDIR/);
    expect(lstatSync(join(folder, name)).isSymbolicLink()).toBe(true);
  });

  it('is not used if other users may write to it', () => {
    const folder = temporary();
    mkdirSync(join(folder, name));
    chmodSync(join(folder, name), 0o777);
    expect(claim).toThrow(/is not a folder of this user alone/);
  });
});
