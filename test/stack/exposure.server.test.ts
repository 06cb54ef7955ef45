// Nobody but this user reaches what the embedded stack serves and keeps: nothing listens beyond loopback, and its folder is closed.
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

describe('the embedded stack', { timeout: 240_000 }, () => {
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
        environments: resolve('dist/environments/server/main.js'),
        follower: resolve('dist/workers/follower-main.js'),
      },
      log: () => undefined,
      gaveUp: () => undefined,
      temporalPort: await freePort(),
      uiPort: await freePort(),
    });
    process.umask(before);
  }, 120_000);
  afterAll(() => stack?.stop());

  it.skipIf(process.platform !== 'linux')(
    'listens on loopback alone, its engine included (read from /proc of Linux)',
    async () => {
      const pids = (): number[] => withDescendants(stack.processes.flatMap(({ pid }) => pid ?? []));
      await until(() => pids().length > stack.processes.length, 'the engine to be started');
      const listeners = listenersOf(pids());
      for (const address of [
        stack.addresses.temporal,
        new URL(stack.addresses.ui).host,
        new URL(stack.addresses.environments).host,
      ])
        expect(listeners.map((listener) => listener.address)).toContain(address);
      expect(listeners.filter(({ loopback }) => !loopback)).toEqual([]);
    },
  );

  it('keeps everything in a folder that is closed to others', () => {
    expect(readdirSync(folder)).toContain('temporal.db');
    expect(othersMay(folder)).toBe(0);
    expect(othersMay(join(folder, 'grading-token'))).toBe(0);
  });
});

describe('this search for listeners', () => {
  it.each(['0.0.0.0', '::'])('finds one on %s', async (host) => {
    const server = createServer();
    const listening = await new Promise<boolean>((done) => {
      server.once('error', () => done(false)).listen(0, host, () => done(true));
    });
    // A machine without IPv6 has nothing to find.
    if (!listening) return;
    const found = listenersOf([process.pid]).filter(({ loopback }) => !loopback);
    await new Promise((done) => server.close(done));
    expect(found).toHaveLength(1);
  });

  it('finds one on a Unix socket', async () => {
    const path = join(outer, 'socket');
    const server = createServer().listen(path);
    await new Promise((done) => server.once('listening', done));
    const found = listenersOf([process.pid]).map(({ address }) => address);
    await new Promise((done) => server.close(done));
    expect(found).toContain(path);
  });
});

describe('the folder of a worker', () => {
  it('is made closed to others', () => {
    lockFolder(join(outer, 'deep', 'worker'), 'a test').release();
    for (const path of ['deep', 'deep/worker']) expect(othersMay(join(outer, path))).toBe(0);
  });
});

describe('the folder of claimed ports, whose name anybody can guess', () => {
  const name = `longhaul-ports-${userInfo().uid}`;
  const temporary = (): string => {
    const folder = mkdtempSync(join(outer, 'tmp-'));
    vi.stubEnv('TMPDIR', folder);
    return folder;
  };
  afterAll(() => vi.unstubAllEnvs());
  const claim = () => new ClaimedPorts(() => undefined);

  it('is made closed to others', () => {
    const folder = temporary();
    claim();
    expect(othersMay(join(folder, name))).toBe(0);
  });

  it('is not used where it leads elsewhere', () => {
    const folder = temporary();
    mkdirSync(join(folder, 'elsewhere'));
    symlinkSync(join(folder, 'elsewhere'), join(folder, name));
    expect(claim).toThrow(/is not a folder of this user alone; remove it, or set TMPDIR/);
    expect(lstatSync(join(folder, name)).isSymbolicLink()).toBe(true);
  });

  it('is not used where others may write to it', () => {
    const folder = temporary();
    mkdirSync(join(folder, name));
    chmodSync(join(folder, name), 0o777);
    expect(claim).toThrow(/is not a folder of this user alone/);
  });
});
