// The server as a process, with its apps: start, token, oracle episodes, death during a call, restart, exit.
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { generateTasks } from '../../../../examples/apps/generate.js';
import { appByName, appNames } from '../../../../examples/apps/registry.js';
import { oracle, oracleAnswer, taskFromKey } from '../../../../examples/apps/task-key.js';
import { type EnvironmentBackend, EnvironmentError } from '../../../../src/environments/environment.js';
import { createOpenEnvBackend } from '../../../../src/environments/openenv/openenv-backend.js';
import type { Task } from '../../../../src/spec/records/task.js';
import {
  spawnEnvironmentServer,
  startEnvironmentProcess,
  testToken,
  type EnvironmentProcess,
} from '../../../support/servers/environment-process.js';
import { type FaultRates, withFaults } from '../../../environments/faulty-backend.js';

const quiet = new AbortController().signal;
const cleanup: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const clean of cleanup.splice(0).reverse()) await clean();
});

async function start(args: readonly string[] = []): Promise<EnvironmentProcess> {
  const server = await startEnvironmentProcess(args);
  cleanup.push(() => server.kill('SIGKILL'));
  return server;
}

function connect(url: string, rates: FaultRates = {}): EnvironmentBackend {
  const backend = withFaults(createOpenEnvBackend({ url, gradingToken: testToken, maxSessions: 32 }), rates);
  cleanup.push(() => backend.close());
  return backend;
}

async function failedStart(
  args: readonly string[],
  environment: NodeJS.ProcessEnv = {},
): Promise<{ code: number; errors: string }> {
  const child = spawnEnvironmentServer(args, environment);
  let errors = '';
  child.stderr?.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number];
  return { code, errors };
}

const tasks = (count: number): Task[] =>
  generateTasks({ apps: [...appNames], seed: 3, train_tasks: count, held_out_tasks: 0 });

/** Plays the oracle; an episode that fails is played again from the start, with the next try number. */
async function playOracle(
  backend: EnvironmentBackend,
  task: Task,
  seed: number,
): Promise<{ value: number; tries: number }> {
  for (let tryNumber = 0; tryNumber < 50; tryNumber++) {
    try {
      const env = await backend.open(task, { seed, episodeId: `e${seed}`, tryNumber }, quiet);
      try {
        for (const [turn, call] of oracle(task.task_key).entries()) {
          expect(await env.callTool(call, { turn, tryNumber })).toMatchObject({ isError: false });
        }
        const { outcome } = await env.grade({ finalAnswer: oracleAnswer(task.task_key), tryNumber });
        return { value: outcome.value, tries: tryNumber };
      } finally {
        await env.close();
      }
    } catch (error) {
      if (!(error instanceof EnvironmentError)) throw error;
      await vi.waitFor(async () => expect(await backend.healthy()).toBe(true), { timeout: 120_000 });
    }
  }
  throw new Error(`${task.task_key} was not played in 50 tries`);
}

describe('the example server', () => {
  it('grades the oracle of every template as 1, and doing nothing as 0', async () => {
    const backend = connect((await start()).url);
    const every = appNames.reduce((sum, name) => sum + appByName(name).templates.length, 0);
    for (const [seed, task] of tasks(every).entries()) {
      expect({ key: task.task_key, ...(await playOracle(backend, task, seed)) }).toMatchObject({
        value: 1,
        tries: 0,
      });
    }
    const [idle] = tasks(1);
    const env = await backend.open(idle!, { seed: 1, episodeId: 'e', tryNumber: 0 }, quiet);
    expect((await env.grade({ finalAnswer: '', tryNumber: 0 })).outcome.value).toBe(0);
    await env.close();
  });

  it('grades the final answer', async () => {
    const backend = connect((await start()).url);
    const task = taskFromKey('mail/sender_of/000001');
    const value = async (finalAnswer: string): Promise<number | null> => {
      const env = await backend.open(task, { seed: 1, episodeId: finalAnswer, tryNumber: 0 }, quiet);
      const { outcome } = await env.grade({ finalAnswer, tryNumber: 0 });
      await env.close();
      return outcome.status === 'graded' ? outcome.value : null;
    };
    const answer = oracleAnswer(task.task_key);
    expect(await value(`It is ${answer.toUpperCase()}!`)).toBe(1);
    expect(await value(answer === 'nadia' ? 'oscar' : 'nadia')).toBe(0);
    expect(await value('')).toBe(0);
  });

  it('grades the oracle as 1 even if a fifth of all requests fail', async () => {
    const backend = connect((await start()).url, { fault_rate: 0.2 });
    const played = await Promise.all(tasks(64).map((task, seed) => playOracle(backend, task, seed)));
    expect(played.filter(({ value }) => value !== 1)).toEqual([]);
    expect(played.reduce((sum, { tries }) => sum + tries, 0)).toBeGreaterThan(10);
  });

  it('writes a new token to a file that only its owner can read', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'longhaul-token-'));
    cleanup.push(() => rmSync(folder, { recursive: true }));
    const file = join(folder, 'token');
    const child = spawnEnvironmentServer(['--token-file', file], { LONGHAUL_GRADING_TOKEN: '' });
    cleanup.push(() => void child.kill('SIGKILL'));
    await once(child.stdout!, 'data');
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(readFileSync(file, 'utf8')).toMatch(/^[\w-]{32}\n$/);
    const exit = once(child, 'exit');
    child.kill('SIGTERM');
    expect(await exit).toEqual([0, null]);
  });

  it('exits with 0 at SIGTERM in the middle of episodes', async () => {
    const server = await start();
    const [task] = tasks(1);
    await connect(server.url).open(task!, { seed: 1, episodeId: 'e', tryNumber: 0 }, quiet);
    const exit = once(server.child, 'exit');
    server.child.kill('SIGTERM');
    expect(await exit).toEqual([0, null]);
  });

  it('makes a call unavailable if the server is killed during the call; after its restart the episode is played again', async () => {
    const server = await start();
    const backend = connect(server.url);
    const [task] = tasks(1);
    const env = await backend.open(task!, { seed: 1, episodeId: 'e', tryNumber: 0 }, quiet);
    // The server is stopped first, so that the call is certainly in flight when the server dies.
    server.child.kill('SIGSTOP');
    const call = env.callTool(oracle(task!.task_key)[0]!, { turn: 0, tryNumber: 0 });
    const lost = expect(call).rejects.toMatchObject({ kind: 'unavailable', reason: 'socket_lost' });
    await server.kill('SIGKILL');
    await lost;
    await env.close();
    expect(await backend.healthy()).toBe(false);
    await start(['--port', new URL(server.url).port]);
    expect(await playOracle(backend, task!, 1)).toMatchObject({ value: 1 });
  });

  it.each([
    [['--port', 'x'], /--port is \\"x\\"; it must be a whole number from 0 to 65535/],
    [['--fault-rate', '2'], /--fault-rate is \\"2\\"; it must be from 0 to 1/],
    [['--colour'], /Unknown option '--colour'/],
    [[], /no grading token: set LONGHAUL_GRADING_TOKEN, or name a file for a new token with --token-file/],
  ])('refuses %j in one line', async (args, message) => {
    const { code, errors } = await failedStart(args, { LONGHAUL_GRADING_TOKEN: args.length > 0 ? 'x' : '' });
    expect(code).toBe(1);
    expect(errors).toMatch(message);
    expect(errors.trim().split('\n')).toHaveLength(1);
  });

  it('names the used port and the fix', async () => {
    const holder = createServer().listen(0, '127.0.0.1');
    await once(holder, 'listening');
    cleanup.push(() => void holder.close());
    const { port } = holder.address() as AddressInfo;
    const { code, errors } = await failedStart(['--port', String(port)], { LONGHAUL_GRADING_TOKEN: 'x' });
    expect(code).toBe(1);
    expect(errors).toContain(
      `port ${port} of 127.0.0.1 is taken by another process; choose another with --port`,
    );
  });
});
