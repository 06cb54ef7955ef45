// Our client on a service that answers as Fleet's does.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { parseSolutions, parseTasks, type Solution } from '../../../src/data/task-file.js';
import type { Environment, EnvironmentBackend } from '../../../src/environments/environment.js';
import { createFleetBackend } from '../../../src/environments/fleet/fleet-backend.js';
import { createSemaphore } from '../../../src/environments/semaphore.js';
import type { Task } from '../../../src/spec/records/task.js';
import { type FleetService, fleetVenv, startFleetService } from './fleet-service.js';

const venv = await fleetVenv();
if ('skipped' in venv) console.warn(`skipped: the service cannot run here: ${venv.skipped}`);
const quiet = new AbortController().signal;

describe.skipIf('skipped' in venv)('Fleet', { timeout: 120_000 }, () => {
  let service: FleetService;
  let tasks: Task[];
  let solutions: Map<string, Solution>;
  const codes = new Map<string, string>();
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-fleet-owner-'));
  beforeAll(async () => {
    service = await startFleetService((venv as { python: string }).python);
    const read = (name: string): string => readFileSync(join(service.tasks, name), 'utf8');
    tasks = parseTasks(read('tasks.json'), 'tasks.json', (sha256, code) => codes.set(sha256, code));
    solutions = new Map(
      parseSolutions(read('solutions.jsonl'), 'solutions.jsonl').map((one) => [one.task_key, one]),
    );
  }, 400_000);
  afterAll(async () => {
    await service?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const usual = {
    ...{ drop_create_reply: 0, fail_create: 0, drop_call_reply: 0, fail_call: 0, drop_delete_reply: 0 },
    ...{ fail_delete: 0, fail_verify: 0, verify_http: 0, judge_error: 0, result_none: 0, lock: false },
    ...{
      lock_while_verifying: 0,
      provision_s: 0,
      instance_limit: 1000,
      gated: true,
      slow_call_s: 0,
      seed: 1,
    },
  };
  beforeEach(() => service.control(usual));

  let episodes = 0;
  function backendOf({
    name = `node-${++episodes}`,
    places = 8,
    callTimeoutMs = 10_000,
  } = {}): EnvironmentBackend {
    return createFleetBackend({
      ...{ url: service.url, apiKey: service.key, ttlSeconds: 600, callTimeoutMs },
      places: createSemaphore(places),
      owner: { name, folder: join(folder, name), log: () => undefined },
      verifierCode: (sha256) => Promise.resolve(codes.get(sha256) ?? ''),
    });
  }
  const run = 'run-a';
  const optionsOf = (episodeId: string, opening = 0) => ({ seed: 1, tryNumber: 0, episodeId, opening, run });
  const open = (backend: EnvironmentBackend, task: Task, episodeId = `e-${++episodes}`, opening = 0) =>
    backend.open(task, optionsOf(episodeId, opening), quiet);
  const taskAt = (index: number): Task => tasks[index] as Task;
  const solutionOf = (task: Task): Solution => solutions.get(task.task_key) as Solution;
  const running = async (): Promise<number> =>
    (await service.log()).instances.filter(({ status }) => status !== 'stopped').length;

  async function solve(environment: Environment, { calls, final_answer }: Solution): Promise<number> {
    for (const [turn, call] of calls.entries())
      expect(await environment.callTool(call, { turn, tryNumber: 0 })).toMatchObject({ isError: false });
    const { outcome } = await environment.grade({ finalAnswer: final_answer, tryNumber: 0 });
    return outcome.value;
  }

  it('grades a solution 1, and doing nothing 0, and leaves no instance', async () => {
    const backend = backendOf();
    const [task, other] = [taskAt(0), taskAt(1)];
    const solved = await open(backend, task);
    const idle = await open(backend, other);
    expect(solved.tools.length).toBeGreaterThan(8);
    expect(solved.tools.map(({ name }) => name)).not.toContain('computer');
    expect(idle.tools).toBe(solved.tools);
    expect(await solve(solved, solutionOf(task))).toBe(1);
    expect((await idle.grade({ finalAnswer: '', tryNumber: 0 })).outcome.value).toBe(0);
    await Promise.all([solved.close(), idle.close()]);
    await backend.close();
    expect(await running()).toBe(0);
  });

  it('adopts the instance whose making was not answered', async () => {
    await service.control({ drop_create_reply: 1 });
    const backend = backendOf();
    const before = (await service.log()).instances.length;
    const opening = open(backend, taskAt(0));
    await expect
      .poll(async () => (await service.log()).instances.length, { timeout: 20_000 })
      .toBe(before + 1);
    const environment = await opening;
    expect((await service.log()).instances.length).toBe(before + 1);
    expect(await solve(environment, solutionOf(taskAt(0)))).toBe(1);
    await environment.close();
    await backend.close();
    expect(await running()).toBe(0);
  });

  it('sends a call once, and gives up the world when its answer is lost', async () => {
    const backend = backendOf();
    const environment = await open(backend, taskAt(0));
    const [call] = solutionOf(taskAt(0)).calls;
    const before = (await service.log()).calls.length;
    await service.control({ drop_call_reply: 1 });
    await expect(
      environment.callTool(call as Solution['calls'][0], { turn: 0, tryNumber: 0 }),
    ).rejects.toMatchObject({
      ...{ kind: 'unavailable', reason: 'socket_lost' },
    });
    expect((await service.log()).calls.length).toBe(before + 1);
    await environment.close();
    expect(await running()).toBe(0);
    await backend.close();
  });
});
