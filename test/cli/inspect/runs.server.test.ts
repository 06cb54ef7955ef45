// The list of runs: the runs that this Temporal server drives, and the runs that only the store knows.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join, resolve } from 'node:path';
import { ApplicationFailure } from '@temporalio/activity';
import type { WorkflowExecutionStatusName } from '@temporalio/client';
import { describe, expect, it } from 'vitest';
import { newestOfChains } from '../../../src/cli/inspect/runs-command.js';
import { namesFolder, ownersFolder, runKey, sequenceKey, updateKey } from '../../../src/store/record-keys.js';
import { openStore } from '../../../src/store/open-store.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { freePort } from '../../../src/stack/free-port.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { startRun, uniqueName, uniqueScript, withRun } from '../../workflows/scripted-run.js';
import { folder, longhaul, store, storeAddress, temporal, useCommandStage } from './command-stage.js';

useCommandStage();

describe('longhaul runs', () => {
  it('lists the store’s runs that this server does not drive, and lists each driven run once', async () => {
    const records = recordsOfAllKinds();
    const driven = uniqueName('driven');
    for (const run of ['elsewhere', driven]) {
      await store.create(runKey(run), await encodeRecord('run', { ...records.run, run, name: run }));
      const base = { ...records.base, identity: { ...records.base.identity, run } };
      await store.create(updateKey(run, 0), await encodeRecord('base', base));
    }
    await store.create(runKey('damaged'), Buffer.from('{"schema":"longhaul.run/3","cut of'));
    const workflow = await startRun(temporal, uniqueName('nobody'), driven);
    const { code, output, errors } = await longhaul('runs', '--json', '--store', storeAddress);
    expect({ code, errors }).toEqual({ code: 0, errors: '' });
    const lines = JSON.parse(output) as { run: string; status: string; step: number | null }[];
    expect(lines.filter(({ run }) => run === driven)).toMatchObject([
      { status: 'running', phase: 'waiting' },
    ]);
    expect(lines.find(({ run }) => run === 'elsewhere')).toMatchObject({
      status: 'not running here',
      step: 0,
    });
    expect(lines.find(({ run }) => run === 'damaged')).toMatchObject({ status: 'unreadable' });
    expect((await longhaul('runs', '--store', storeAddress)).output).toMatch(/elsewhere +not running here/);
    await workflow.terminate();
  });

  it('lists each timeline once, by its id and with its origin, including rewound timelines', async () => {
    const records = recordsOfAllKinds();
    const name = uniqueName('rewound');
    const driveAndEnd = async (): Promise<string> => {
      const workflow = await startRun(temporal, uniqueName('nobody'), name);
      await workflow.terminate();
      return workflow.firstExecutionRunId;
    };
    const [first, again] = [await driveAndEnd(), await driveAndEnd()];
    const workflow = await startRun(temporal, uniqueName('nobody'), name);
    const timelines = [
      { run: name, owners: [first], from: null },
      { run: `${name}~2`, owners: [again], from: { run: name, step: 2 } },
      { run: `${name}~3`, owners: [workflow.firstExecutionRunId], from: { run: `${name}~2`, step: 3 } },
    ];
    for (const [index, { run, owners, from }] of timelines.entries()) {
      const lineage = from ? { ...from, state: records.base.identity.state } : null;
      const n = index + 1;
      await store.create(runKey(run), await encodeRecord('run', { ...records.run, run, name, lineage }));
      const named = await encodeRecord('name', { schema: 'longhaul.name/1', n, run });
      await store.create(sequenceKey(namesFolder(name), n), named);
      for (const [at, firstExecutionRunId] of owners.entries()) {
        const owner = { ...records.owner, n: at + 1, firstExecutionRunId };
        await store.create(sequenceKey(ownersFolder(run), at + 1), await encodeRecord('owner', owner));
      }
    }
    const listed = async () => {
      const { output } = await longhaul('runs', '--json', '--store', storeAddress);
      const lines = JSON.parse(output) as { run: string; status: string; from: unknown }[];
      return lines
        .filter(({ run }) => run.startsWith(name))
        .map(({ run, status, from }) => ({ run, status, from }));
    };
    await expect.poll(listed).toEqual([
      { run: `${name}~3`, status: 'running', from: { run: `${name}~2`, step: 3 } },
      { run: `${name}~2`, status: 'rewound', from: { run: name, step: 2 } },
      { run: name, status: 'rewound', from: null },
    ]);
    await workflow.terminate();
  });

  it('lists a start that failed before it claimed the run, and keeps the run’s own line', async () => {
    const records = recordsOfAllKinds();
    const [never, had] = [uniqueName('never'), uniqueName('had')];
    const refuse = async (name: string): Promise<void> => {
      const queue = uniqueName('nobody');
      const { workflowId } = await startRun(temporal, queue, name);
      await temporal.client.workflow.getHandle(workflowId).terminate();
    };
    const driver = await startRun(temporal, uniqueName('nobody'), had);
    await driver.terminate();
    for (const name of [never, had]) {
      const named = await encodeRecord('name', { schema: 'longhaul.name/1', n: 1, run: name });
      await store.create(sequenceKey(namesFolder(name), 1), named);
    }
    await store.create(runKey(had), await encodeRecord('run', { ...records.run, run: had, name: had }));
    const owner = { ...records.owner, n: 1, firstExecutionRunId: driver.firstExecutionRunId };
    await store.create(sequenceKey(ownersFolder(had), 1), await encodeRecord('owner', owner));
    await refuse(never);
    await refuse(had);
    const listed = async (): Promise<unknown> => {
      const { output } = await longhaul('runs', '--json', '--store', storeAddress);
      const lines = JSON.parse(output) as { run: string; status: string }[];
      return lines.filter(({ run }) => [never, had].includes(run)).map(({ run, status }) => [run, status]);
    };
    await expect.poll(listed).toEqual([
      [never, 'start terminated'],
      [had, 'start terminated'],
    ]);
  });

  it('shows a finished run as finished, even after a later start was refused', async () => {
    const records = recordsOfAllKinds();
    const script = uniqueScript('done');
    const { name } = script.outline;
    let refuses = false;
    script.before = (call) => {
      if (call === 'open' && refuses) throw ApplicationFailure.nonRetryable('another spec', 'InvalidSpec');
      return undefined;
    };
    await withRun(temporal, script, async (run, queue) => {
      await run.result();
      await store.create(runKey(name), await encodeRecord('run', { ...records.run, run: name, name }));
      const named = await encodeRecord('name', { schema: 'longhaul.name/1', n: 1, run: name });
      await store.create(sequenceKey(namesFolder(name), 1), named);
      const owner = { ...records.owner, n: 1, firstExecutionRunId: run.firstExecutionRunId };
      await store.create(sequenceKey(ownersFolder(name), 1), await encodeRecord('owner', owner));
      refuses = true;
      await expect((await startRun(temporal, queue, name)).result()).rejects.toThrow();
    });
    let seen: unknown;
    await expect
      .poll(
        async () => {
          const { output } = await longhaul('runs', '--json', '--store', storeAddress);
          seen = (JSON.parse(output) as { run: string; status: string }[]).find(({ run }) => run === name);
          const executions: string[] = [];
          for await (const { status } of temporal.client.workflow.list({
            query: `WorkflowId = "train/${name}"`,
          }))
            executions.push(status.name);
          return executions.sort();
        },
        { timeout: 120_000 },
      )
      .toEqual(['COMPLETED', 'FAILED']);
    expect(seen).toMatchObject({ status: 'completed' });
  });

  it('needs no Temporal server to list the store’s runs, and says that no server answers', async () => {
    const cwd = join(folder, 'offline');
    const offline = `dir:${join(cwd, '.longhaul', 'store')}`;
    const records = recordsOfAllKinds();
    const kept = await openStore(offline);
    await kept.create(
      runKey('kept'),
      await encodeRecord('run', { ...records.run, run: 'kept', name: 'kept' }),
    );
    const base = { ...records.base, identity: { ...records.base.identity, run: 'kept' } };
    await kept.create(updateKey('kept', 0), await encodeRecord('base', base));
    const asked = async (...args: string[]) => {
      const child = spawn(resolve('bin/longhaul'), ['runs', '--json', ...args], {
        cwd,
        env: { ...process.env, TEMPORAL_ADDRESS: undefined, XDG_CONFIG_HOME: cwd },
      });
      let [output, errors] = ['', ''];
      child.stdout.on('data', (piece: Buffer) => (output += piece.toString()));
      child.stderr.on('data', (piece: Buffer) => (errors += piece.toString()));
      const [code] = (await once(child, 'close')) as [number | null];
      return { code, errors, lines: JSON.parse(output) as unknown };
    };
    const lines = [expect.objectContaining({ run: 'kept', status: 'in the store', step: 0 })];
    expect(await asked()).toEqual({
      ...{ code: 0, lines },
      errors: 'no stack runs here and no Temporal server is named: the list comes from the store alone\n',
    });
    const nobody = `127.0.0.1:${await freePort()}`;
    expect(await asked('--temporal-address', nobody)).toEqual({
      ...{ code: 0, lines },
      errors: expect.stringMatching(
        /^no Temporal server answers at .* The list comes from the store alone:\n$/,
      ) as string,
    });
    // Only the server can answer a query.
    expect(await asked('--temporal-address', nobody, '--query', 'Step > 1')).toMatchObject({ code: 1 });
  });

  it('gives the time when a run began, not when its workflow last continued as new', () => {
    const execution = (workflowId: string, minute: number, name: WorkflowExecutionStatusName) => ({
      ...{ workflowId, startTime: new Date(Date.UTC(2030, 0, 1, 12, minute)) },
      status: { name, code: 0 as const },
    });
    const chains = newestOfChains([
      execution('train/a', 1, 'CONTINUED_AS_NEW'),
      execution('train/a', 3, 'CONTINUED_AS_NEW'),
      execution('train/a', 5, 'TERMINATED'),
      execution('train/b', 6, 'COMPLETED'),
      execution('train/a', 7, 'RUNNING'),
    ]);
    expect(
      chains.map(({ workflowId, status, startTime }) => [workflowId, status.name, startTime.getUTCMinutes()]),
    ).toEqual([
      ['train/a', 'RUNNING', 7],
      ['train/b', 'COMPLETED', 6],
      ['train/a', 'TERMINATED', 1],
    ]);
  });

  it('needs no store if none is named', async () => {
    expect(await longhaul('runs')).toMatchObject({ code: 0, errors: '' });
    const missing = await longhaul('runs', '--store', 'dir:./nowhere');
    expect(missing).toMatchObject({
      code: 1,
      errors: expect.stringContaining('there is no store') as string,
    });
  });
});
