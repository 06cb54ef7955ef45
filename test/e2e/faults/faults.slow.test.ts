// Faults around a run on the embedded stack. The run waits, or is blocked and says why and how to continue; it continues when the fault is
// fixed.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client, WorkflowFailedError } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { RunStatus } from '../../../src/activities/contracts.js';
import { servedApps, faultsOfApps } from '../../../examples/apps/server/served-apps.js';
import {
  createEnvironmentServer,
  type EnvironmentServer,
} from '../../../examples/apps/server/environment-server.js';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { updateKey } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { freePort } from '../../../src/stack/free-port.js';
import { type Stack, startStack } from '../../../src/stack/stack.js';
import {
  pauseUpdate,
  resumeUpdate,
  setHyperparametersUpdate,
  statusQuery,
} from '../../../src/workflows/messages.js';
import { openConnection } from '../../../src/workers/temporal/temporal-connection.js';
import { specFor, tamper, writeData } from '../../activities/fixture.js';
import { findEngine } from '../../support/find-tools.js';

const compiled = (path: string): string => resolve('dist', path);
const gradingToken = 'token-of-another-server';
const folder = mkdtempSync(join(tmpdir(), 'longhaul-faults-'));
const stackFolder = join(folder, 'stack');
let stack: Stack;
let client: Client;
let store: ObjectStore;
let data: { tasks: string; demonstrations: string };

beforeAll(async () => {
  data = writeData(folder);
  vi.stubEnv('OTHER_SERVER_TOKEN', gradingToken);
  stack = await startStack({
    folder: stackFolder,
    engine: findEngine(),
    log: () => undefined,
    gaveUp: (error) => process.stderr.write(`${error.message}\n`),
    temporalPort: await freePort(),
    uiPort: await freePort(),
    scripts: {
      orchestrator: compiled('workers/orchestrator-main.js'),
      node: compiled('workers/node-main.js'),
      environments: [process.execPath, compiled('examples/apps/server/main.js')],
      follower: compiled('workers/follower-main.js'),
    },
  });
  const connection = openConnection({ address: stack.addresses.temporal });
  client = new Client({ connection });
  store = await openStore(stack.addresses.store);
});

afterAll(async () => {
  vi.unstubAllEnvs();
  await client?.connection.close();
  await stack?.stop();
  rmSync(folder, { recursive: true, force: true });
});

type Spec = Record<string, unknown>;

function named(name: string, changes: Spec = {}): Spec {
  return { ...specFor(data), name, ...changes };
}

function start(spec: Spec) {
  return client.workflow.start('trainingRun', {
    taskQueue: 'longhaul',
    workflowId: `train/${String(spec['name'])}`,
    args: [spec],
  });
}
type Run = Awaited<ReturnType<typeof start>>;

async function until(run: Run, holds: (status: RunStatus) => boolean, what: string): Promise<RunStatus> {
  const deadline = Date.now() + 90_000;
  let last: RunStatus | undefined;
  let failure: unknown;
  run.result().catch((error: unknown) => (failure = error));
  while (Date.now() < deadline) {
    if (failure) throw new Error(`the run failed before ${what}`, { cause: failure });
    last = await client
      .withDeadline(Date.now() + 10_000, () => run.query<RunStatus>(statusQuery))
      .catch(() => undefined);
    if (last && holds(last)) return last;
    await delay(50);
  }
  throw new Error(`waited 90 s for ${what}; last: ${JSON.stringify(last)}`);
}

async function longhaul(args: readonly string[]): Promise<{ code: number; output: string; errors: string }> {
  const child = spawn(resolve('bin/longhaul'), args, { cwd: folder });
  const timer = setTimeout(() => child.kill('SIGKILL'), 120_000);
  let [output, errors] = ['', ''];
  child.stdout.on('data', (piece: Buffer) => (output += piece.toString()));
  child.stderr.on('data', (piece: Buffer) => (errors += piece.toString()));
  const [code] = (await once(child, 'close')) as [number];
  clearTimeout(timer);
  return { code, output, errors };
}

async function whole(name: string): Promise<void> {
  expect((await auditRun(store, name)).violations).toEqual([]);
}

describe('trainingRun', () => {
  it('fails at once if the spec is bad, and lists every problem', async () => {
    const spec = named('bad', { nmae: 'x', trainer: { lr: -1, ckpt_intervall: 2 } });
    const error = await (await start(spec)).result().then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(WorkflowFailedError);
    const cause = (error as WorkflowFailedError).cause as Error & { type?: string };
    expect(cause.type).toBe('InvalidSpec');
    for (const part of ['nmae', 'did you mean name', 'trainer.lr', 'ckpt_interval'])
      expect(cause.message).toContain(part);
    expect(await store.get('runs/bad/run.json')).toBeNull();
  });

  it('is blocked by a damaged record, names it, and continues when the record is restored', async () => {
    const run = await start(named('damaged', { seed: 11 }));
    await until(run, ({ step }) => step >= 1, 'the first step');
    await run.executeUpdate(pauseUpdate);
    const { step } = await until(run, ({ phase }) => phase === 'paused', 'the pause');
    const key = updateKey('damaged', step);
    const good = (await store.get(key)) as Uint8Array;
    await tamper(store, key, (bytes) => bytes.subarray(0, bytes.length / 2));
    await run.executeUpdate(resumeUpdate);
    const { blocked } = await until(run, (status) => status.blocked !== null, 'the block');
    expect(blocked?.reason).toContain(key);
    expect(blocked?.remedy).toMatch(/^Restore \S+update\.json from a copy\. Then: longhaul resume damaged$/);
    await tamper(store, key, () => good);
    await run.executeUpdate(resumeUpdate);
    expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
    await whole('damaged');
  });
});

describe('an environment server that is down', () => {
  let server: EnvironmentServer | null = null;
  afterAll(() => server?.close());

  it('makes the run wait and then blocks it, at the start or later; the run continues when the server is up', async () => {
    const port = await freePort();
    const serve = () =>
      createEnvironmentServer({ port, apps: servedApps(), faults: faultsOfApps, gradingToken });
    const base = named('envless', { seed: 12 });
    const run = await start({
      ...base,
      environments: [
        { env_key: 'tracker', url: `http://127.0.0.1:${port}`, grading_token_env: 'OTHER_SERVER_TOKEN' },
      ],
      generator: { ...(base['generator'] as Spec), max_wait_s: 3 },
      trainer: { ...(base['trainer'] as Spec), max_training_steps: 12, eval_interval: 12 },
    });
    const down = await until(run, ({ blocked }) => blocked !== null, 'the block at the start');
    expect(down.blocked?.reason).toContain(`127.0.0.1:${port}`);
    expect(down.blocked?.remedy).toMatch(/Start the environment servers.*longhaul resume envless/);
    server = await serve();
    await run.executeUpdate(resumeUpdate);
    await until(run, ({ step }) => step >= 4, 'two steps of GRPO');
    await server.close();
    const cut = await until(run, ({ blocked }) => blocked !== null, 'the block in mid-run');
    expect(cut.step).toBeLessThan(14);
    server = await serve();
    await run.executeUpdate(resumeUpdate);
    expect(await run.result()).toMatchObject({ ended: 'completed', step: 14 });
    const audit = await auditRun(store, 'envless');
    expect(audit.violations).toEqual([]);
  });
});

describe('a run that is started twice', () => {
  const write = (name: string, spec: Spec): string => {
    const path = join(folder, name);
    writeFileSync(path, JSON.stringify(spec));
    return path;
  };
  const train = (file: string, ...flags: string[]) =>
    longhaul(['train', file, '--folder', stackFolder, ...flags]);

  it('is followed by the second start, which is refused if its spec differs, and returns at once if the run is complete', async () => {
    const spec = named('twice', { seed: 13 });
    const file = write('twice.json', spec);
    const other = write('other.json', { ...spec, seed: 14 });
    const run = await start(spec);
    await until(run, ({ step }) => step >= 1, 'the first step');
    await run.executeUpdate(setHyperparametersUpdate, { args: [{ lr: 2e-4 }] });
    await run.executeUpdate(pauseUpdate);
    expect(await train(file, '--detach')).toMatchObject({
      code: 0,
      errors: expect.stringContaining('twice is running already\n') as string,
    });
    const refused = await train(other, '--detach');
    expect(refused).toMatchObject({
      code: 1,
      errors: expect.stringMatching(/exists with another spec:\n +seed \(stored 13, computed 14\)/) as string,
    });
    const following = train(file);
    await run.executeUpdate(resumeUpdate);
    expect(await following).toMatchObject({
      code: 0,
      output: expect.stringContaining('twice completed at step 6') as string,
    });
    const before = await store.get(updateKey('twice', 6));
    expect(await train(file)).toMatchObject({
      code: 0,
      output: expect.stringContaining('twice completed at step 6') as string,
    });
    expect(await store.get(updateKey('twice', 6))).toEqual(before);
    expect(await train(other)).toMatchObject({
      code: 1,
      errors: expect.stringContaining('exists with another spec') as string,
    });
    await whole('twice');
  });
});

describe('an unknown run', () => {
  it.each([['status'], ['pause'], ['resume']])('is reported in one line by %s', async (verb) => {
    const { code, errors } = await longhaul([verb, 'NOSUCH', '--folder', stackFolder]);
    expect(errors).toMatch(
      /^on .*\(from the stack in .*\)\nerror: there is no run "NOSUCH" on this Temporal server[^\n]*\n$/,
    );
    expect(code).toBe(1);
  });
});
