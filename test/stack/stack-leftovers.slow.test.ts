// A supervisor was killed, and its list of processes is lost or damaged. The next supervisor must end the old processes, and must not start
// a second Temporal server on a database that a living server has open.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { freePort } from '../../src/stack/free-port.js';
import { identityOf } from '../../src/workers/process/process-identity.js';
import { ProcessRegistry } from '../../src/stack/process-registry.js';
import { markedProcesses, refuseSecondServer, stackMark } from '../../src/stack/stack-leftovers.js';
import { findEngine } from '../support/find-tools.js';
import { ended, spawnTemporal } from '../support/servers/temporal-server.js';
import { until } from '../support/until.js';

const outer = mkdtempSync(join(tmpdir(), 'longhaul-leftovers-'));
afterAll(() => rmSync(outer, { recursive: true, force: true }));
const newFolder = (): string => mkdtempSync(join(outer, 'stack-'));
const said: string[] = [];
const log = (message: string): void => void said.push(message);

describe('a damaged list of processes', () => {
  it.each(['[null]', '[', '{}', '"node"', '[{"name":"node"}]', '[{"name":"node","pid":-1,"startTime":"1"}]'])(
    '%s is logged once and causes no error',
    async (text) => {
      said.length = 0;
      const path = join(newFolder(), 'processes.json');
      writeFileSync(path, text);
      const registry = new ProcessRegistry(path, { log });
      expect(await registry.endLeftovers(100)).toEqual([]);
      expect(said).toEqual([
        expect.stringContaining(`${path} cannot be read (it is not a list of processes)`),
      ]);
      expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual([]);
    },
  );
});

describe.skipIf(process.platform !== 'linux')('a leftover process (found in /proc of Linux)', () => {
  const left: ChildProcess[] = [];
  afterEach(async () => {
    await Promise.all(left.splice(0).map((child) => ended(child, 'SIGKILL')));
  });
  const sleeper = (folder: string): ChildProcess => {
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], {
      env: { ...process.env, ...stackMark('node', folder) },
    });
    left.push(child);
    return child;
  };

  it('is found by its folder’s mark and ended without the list; a process of another folder stays', async () => {
    const [folder, other] = [newFolder(), newFolder()];
    const [mine, stranger] = [sleeper(folder), sleeper(other)];
    await until(() => markedProcesses(other).length === 1, 'both to be started');
    const marked = markedProcesses(folder);
    expect(marked).toEqual([{ name: 'node', ...identityOf(mine.pid ?? 0) }]);
    const registry = new ProcessRegistry(join(folder, 'processes.json'), { log });
    expect(await registry.endLeftovers(5_000, marked)).toEqual(marked);
    expect(identityOf(mine.pid ?? 0)).toBeNull();
    expect(identityOf(stranger.pid ?? 0)).not.toBeNull();
  });

  it('that is a Temporal server without a mark, with the database open, stops the next `up`, and the error names it', async () => {
    const folder = newFolder();
    const database = join(folder, 'temporal.db');
    refuseSecondServer(database);
    const server = spawnTemporal(await freePort(), database);
    left.push(server);
    await until(() => {
      try {
        refuseSecondServer(database);
        return false;
      } catch {
        return true;
      }
    }, 'the server to open its database');
    const up = await ending(spawnUp(folder));
    const { error } = JSON.parse(up.output) as { error: { message: string } };
    expect(error.message).toMatch(
      new RegExp(`^process ${server.pid} \\(.*\\) is a Temporal server that uses ${database}`),
    );
    expect(error.message).toContain(`\`kill ${server.pid}\``);
    expect(up.code).toBe(1);
    await ended(server);
    refuseSecondServer(database);
  });

  it.each([
    ['lost', null],
    ['damaged', '[null]'],
  ])(
    'is ended by the next `up` if the list is %s, so that only one server has the database',
    async (_what, text) => {
      const folder = newFolder();
      const first = spawnUp(folder);
      await serving(first);
      first.kill('SIGKILL');
      await once(first, 'close');
      const before = markedProcesses(folder);
      expect(before.map(({ name }) => name)).toContain('temporal');
      rmSync(join(folder, 'processes.json'));
      if (text !== null) writeFileSync(join(folder, 'processes.json'), text);
      const second = spawnUp(folder);
      try {
        await serving(second);
        for (const { pid, startTime } of before) expect(identityOf(pid)?.startTime).not.toBe(startTime);
        expect(serversOn(join(folder, 'temporal.db'))).toHaveLength(1);
      } finally {
        second.kill('SIGTERM');
        if (second.exitCode === null) await once(second, 'close');
      }
      expect(markedProcesses(folder)).toEqual([]);
    },
    240_000,
  );

  function spawnUp(folder: string): ChildProcess {
    mkdirSync(folder, { recursive: true });
    const child = spawn(resolve('bin/longhaul'), ['up', '--json', '--folder', folder], {
      env: { ...process.env, LONGHAUL_ENGINE: findEngine() },
    });
    left.push(child);
    return child;
  }

  async function serving(up: ChildProcess): Promise<void> {
    let [said, errors] = ['', ''];
    up.stdout?.on('data', (piece: Buffer) => (said += piece.toString()));
    up.stderr?.on('data', (piece: Buffer) => (errors += piece.toString()));
    await until(() => said.includes('\n') || up.exitCode !== null, 'the stack to be up');
    expect(up.exitCode, errors).toBe(null);
  }

  async function ending(child: ChildProcess): Promise<{ code: number | null; output: string }> {
    let output = '';
    child.stdout?.on('data', (piece: Buffer) => (output += piece.toString()));
    const [code] = (await once(child, 'close')) as [number | null];
    return { code, output };
  }

  function serversOn(database: string): string[] {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .flatMap((pid) => {
        try {
          const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
          return command.includes('start-dev') && command.includes(database) ? [pid] : [];
        } catch {
          return [];
        }
      });
  }
});
