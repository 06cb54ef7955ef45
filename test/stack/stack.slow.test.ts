import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from '@temporalio/client';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { holderOf } from '../../src/workers/process/folder-lock.js';
import { freePort } from '../../src/stack/free-port.js';
import { stackIdentity, stackOfServer } from '../../src/stack/stack-identity.js';
import { runningStack, type Stack, startStack } from '../../src/stack/stack.js';
import { statusQuery } from '../../src/workflows/messages.js';
import type { trainingRun } from '../../src/workflows/run/training-run.js';
import { openConnection } from '../../src/workers/temporal/temporal-connection.js';

const fixture = (name: string): string =>
  new URL(`../workers/fixtures/${name}.mjs`, import.meta.url).pathname;
const scripts = {
  orchestrator: fixture('orchestrator'),
  node: fixture('node'),
  environments: [process.execPath, fixture('environments')],
};

describe('the embedded stack', () => {
  let folder: string;
  const said: string[] = [];
  let stack: Stack | null = null;

  const start = async (options: { nodes?: number } = {}): Promise<Stack> => {
    folder = mkdtempSync(join(tmpdir(), 'longhaul-stack-'));
    vi.stubEnv('COUNTING_RECORDS', join(folder, 'records'));
    stack = await startStack({
      ...{ folder, scripts, engine: process.execPath, log: (message) => said.push(message) },
      gaveUp: (error) => said.push(`gave up: ${error.message}`),
      temporalPort: await freePort(),
      uiPort: await freePort(),
      ...options,
    });
    return stack;
  };
  afterEach(async () => {
    vi.unstubAllEnvs();
    await stack?.stop();
    stack = null;
    rmSync(folder, { recursive: true, force: true });
  });

  it('restarts each killed process, and the run commits every step exactly once', async () => {
    const { addresses, processes } = await start();
    expect(runningStack(folder)).toEqual(addresses);
    const connection = openConnection({ address: addresses.temporal });
    expect(addresses.id).toMatch(/^[0-9a-f]{32}$/);
    const itself = stackIdentity(addresses.id ?? '', folder);
    expect(await stackOfServer(connection)).toEqual(itself);
    const run = await new Client({ connection }).workflow.start<typeof trainingRun>('trainingRun', {
      taskQueue: 'longhaul',
      workflowId: 'train/counting',
      args: [{}],
    });
    const lastStep = (): number =>
      Number(readFileSync(join(folder, 'records'), 'utf8').trim().split('\n').at(-1));
    await until(() => lastStep() >= 1, 'the first step');
    for (const name of ['node', 'orchestrator', 'environments', 'temporal']) {
      const one = processes.find((candidate) => candidate.name === name);
      const before = one?.pid;
      if (!one || !before) throw new Error(`${name} is not running`);
      const stepBefore = lastStep();
      process.kill(before, 'SIGKILL');
      await until(() => one.pid !== before && one.restarts === 1, `${name} to be started again`);
      await until(() => lastStep() > stepBefore, `a step after the death of ${name}`);
    }
    const result = await run.result();
    expect(result).toMatchObject({ step: 30, ended: 'completed' });
    const records = readFileSync(join(folder, 'records'), 'utf8').trim().split('\n').map(Number);
    expect(records).toEqual(Array.from({ length: 31 }, (_, step) => step));
    expect((await run.query(statusQuery)).lastCheckpoint).toBe(30);
    expect(await stackOfServer(connection)).toEqual(itself);
    await connection.close();
  });

  it('serves with the requested number of nodes, each with its own queue, folder and log', async () => {
    const { processes } = await start({ nodes: 3 });
    const names = ['node', 'node-2', 'node-3'];
    const pids = names.map((name) => processes.find((one) => one.name === name)?.pid);
    // The stack is up only when each node polls its queue.
    expect(names.map((name) => holderOf(join(folder, name)))).toMatchObject(
      ['local', 'local-2', 'local-3'].map((id, index) => ({
        pid: pids[index],
        address: expect.stringContaining(`node worker ${id} of`) as string,
      })),
    );
    expect(readdirSync(join(folder, 'logs'))).toEqual(
      expect.arrayContaining(names.map((name) => `${name}.log`)),
    );
  });
});

async function until(holds: () => boolean, what: string, deadlineMs = 240_000): Promise<void> {
  const deadline = Date.now() + deadlineMs;
  for (;;) {
    try {
      if (holds()) return;
    } catch {
      // The file does not exist yet.
    }
    if (Date.now() > deadline) throw new Error(`waited ${deadlineMs} ms for ${what}`);
    await delay(50);
  }
}
