import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { FolderLocked, holderOf, lockFolder } from '../../../src/workers/process/folder-lock.js';
import { identityOf, isAlive } from '../../../src/workers/process/process-identity.js';
import { ProcessRegistry } from '../../../src/stack/process-registry.js';
import { ended } from '../../support/servers/temporal-server.js';

const scratch = mkdtempSync(join(tmpdir(), 'longhaul-lock-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const newFolder = (): string => mkdtempSync(join(scratch, 'folder-'));
const log = (message: string): void => {
  throw new Error(message);
};
const sleeper = (): ChildProcess =>
  spawn(process.execPath, ['-e', 'setTimeout(() => {}, 60_000)'], { stdio: 'ignore' });
const children: ChildProcess[] = [];
const spawned = async (): Promise<{ child: ChildProcess; pid: number }> => {
  const child = sleeper();
  children.push(child);
  await new Promise((resolve) => child.once('spawn', resolve));
  return { child, pid: child.pid as number };
};
afterEach(() => Promise.all(children.splice(0).map((child) => ended(child, 'SIGKILL'))));

describe('the folder lock (R29)', () => {
  it('admits one process; the error for the next process names the pid and address of the first', () => {
    const folder = newFolder();
    const lock = lockFolder(folder, 'longhaul up at 127.0.0.1:7233');
    expect(() => lockFolder(folder, 'another')).toThrow(FolderLocked);
    expect(() => lockFolder(folder, 'another')).toThrow(
      new RegExp(`process ${process.pid} .*127\\.0\\.0\\.1:7233`),
    );
    expect(holderOf(folder)?.pid).toBe(process.pid);
    lock.release();
    expect(holderOf(folder)).toBeNull();
    lockFolder(folder, 'another').release();
  });

  it('can be taken from a dead process', async () => {
    const folder = newFolder();
    const { child, pid } = await spawned();
    writeFileSync(join(folder, 'lock.json'), JSON.stringify({ ...identityOf(pid), address: 'old' }));
    expect(() => lockFolder(folder, 'new')).toThrow(FolderLocked);
    await ended(child, 'SIGKILL');
    const lock = lockFolder(folder, 'new');
    expect(holderOf(folder)).toMatchObject({ pid: process.pid, address: 'new' });
    lock.release();
  });

  it('can be taken from a dead process whose pid another process has now', async () => {
    const folder = newFolder();
    const { pid } = await spawned();
    writeFileSync(join(folder, 'lock.json'), JSON.stringify({ pid, startTime: '1', address: 'old' }));
    lockFolder(folder, 'new').release();
  });

  it('can be taken if its note was cut off', () => {
    const folder = newFolder();
    writeFileSync(join(folder, 'lock.json'), '{"pid": 1');
    lockFolder(folder, 'new').release();
  });

  it('holds until its holder releases it, even if its note is deleted', () => {
    const folder = newFolder();
    const lock = lockFolder(folder, 'one');
    rmSync(join(folder, 'lock.json'));
    expect(() => lockFolder(folder, 'another')).toThrow(/in use by a process that is not visible here/);
    lock.release();
    lockFolder(folder, 'another').release();
  });
});

describe('the process registry (R29)', () => {
  it('ends only the processes that a killed supervisor left', async () => {
    const path = join(newFolder(), 'processes.json');
    const [mine, reused] = [await spawned(), await spawned()];
    const before = new ProcessRegistry(path, { log });
    before.add('engine', mine.pid);
    const stranger = { name: 'engine', pid: reused.pid, startTime: '1' };
    writeFileSync(path, JSON.stringify([{ name: 'engine', ...identityOf(mine.pid) }, stranger]));

    const ended = await new ProcessRegistry(path, { log }).endLeftovers(2_000);
    expect(ended.map(({ pid }) => pid)).toEqual([mine.pid]);
    expect(identityOf(mine.pid)).toBeNull();
    expect(identityOf(reused.pid)).not.toBeNull();
    expect(await new ProcessRegistry(path, { log }).endLeftovers(0)).toEqual([]);
  });

  it('kills a leftover process that ignores SIGTERM', async () => {
    const path = join(newFolder(), 'processes.json');
    const child = spawn(process.execPath, [
      '-e',
      "process.on('SIGTERM', () => {}); console.log('ready'); setTimeout(() => {}, 60_000)",
    ]);
    children.push(child);
    await new Promise((resolve) => child.stdout.once('data', resolve));
    const registry = new ProcessRegistry(path, { log });
    registry.add('stubborn', child.pid as number);
    const identity = identityOf(child.pid as number);
    await registry.endLeftovers(200);
    await new Promise((resolve) => (child.signalCode === null ? child.once('exit', resolve) : resolve(null)));
    expect(child.signalCode).toBe('SIGKILL');
    expect(identity && isAlive(identity)).toBe(false);
  });
});
