// Our client on a service that answers as Fleet's does.
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { checkGate } from '../../../src/data/preparation/gates.js';
import type { Solution } from '../../../src/data/task-file.js';
import type { Environment, EnvironmentBackend } from '../../../src/environments/environment.js';
import { fleetRequests } from '../../../src/environments/fleet/fleet-request.js';
import { McpSession } from '../../../src/environments/fleet/mcp-session.js';
import { Orchestrator } from '../../../src/environments/fleet/orchestrator.js';
import { FailureLedger } from '../../../src/episode/failure-ledger.js';
import type { Task } from '../../../src/spec/records/task.js';
import { pythonWith } from '../../support/python/python-environments.js';
import { fleetBackend, type FleetTasks, readFleetTasks, run } from './fixture.js';
import { calm, type FleetFaults, type FleetService, startFleetService } from './fleet-service.js';
import { gradesOf } from './measures.js';

const python = await pythonWith('fleet');
const quiet = new AbortController().signal;

/**
 * Passes requests on. It `cuts` the connection after the headers of a tool's answer, or ends the stream `late`, after the answer in it was
 * sent.
 */
async function proxyTo(
  target: string,
  how: 'cuts' | 'late',
): Promise<{ url: string; close: () => Promise<void> }> {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      void (async () => {
        const body = Buffer.concat(chunks);
        const { host: _, 'content-length': __, connection: ___, ...headers } = request.headers;
        const answer = await fetch(`${target}${request.url ?? ''}`, {
          method: request.method ?? 'GET',
          headers: headers as Record<string, string>,
          ...(body.length > 0 ? { body } : {}),
        });
        const type = answer.headers.get('content-type');
        const session = answer.headers.get('mcp-session-id');
        response.writeHead(answer.status, {
          ...(type === null ? {} : { 'content-type': type }),
          ...(session === null ? {} : { 'mcp-session-id': session }),
        });
        const text = await answer.text();
        if (!body.includes('tools/call')) return response.end(text);
        response.flushHeaders();
        if (how === 'late') {
          response.write(text);
          return setTimeout(() => response.end(), 100);
        }
        return setTimeout(() => response.destroy(), 50);
      })();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

describe.skipIf(!python)('Fleet', () => {
  let service: FleetService;
  let known: FleetTasks;
  const folder = mkdtempSync(join(tmpdir(), 'longhaul-fleet-owner-'));
  beforeAll(async () => {
    service = await startFleetService(python);
    known = readFleetTasks(service.tasks);
  });
  afterAll(async () => {
    await service?.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  beforeEach(() => service.control(calm));
  const backends: EnvironmentBackend[] = [];
  // Instances that a failed test left would count in later tests.
  afterEach(async () => {
    await service.control({ ...calm, expire_all: true });
    await Promise.all(backends.splice(0).map((backend) => backend.close()));
  });

  let names = 0;
  const backendOf = (
    more: Partial<Parameters<typeof fleetBackend>[0]> = {},
    owner = `node-${++names}`,
  ): EnvironmentBackend => {
    const options = { url: service.url, key: service.key, codes: known.codes, owner, folder, ...more };
    const backend = fleetBackend(options);
    backends.push(backend);
    return backend;
  };
  const open = (
    backend: EnvironmentBackend,
    task: Task,
    { episodeId = `e-${++names}`, opening = 0, signal = quiet } = {},
  ) => backend.open(task, { seed: 1, tryNumber: 0, episodeId, opening, run }, signal);
  const taskAt = (index: number): Task => known.tasks[index] as Task;
  const solutionOf = (task: Task): Solution => known.solutions.get(task.task_key) as Solution;
  const instances = async () => (await service.log()).instances;
  const running = async (): Promise<number> =>
    (await instances()).filter(({ status }) => status !== 'stopped').length;
  /** A machine may stand still for seconds. */
  const eventually = <T>(found: () => T) => expect.poll(found);

  async function solve(environment: Environment, { calls, final_answer }: Solution): Promise<number> {
    for (const [turn, call] of calls.entries())
      expect(await environment.callTool(call, { turn, tryNumber: 0 })).toMatchObject({ isError: false });
    const { outcome } = await environment.grade({ finalAnswer: final_answer, tryNumber: 0 });
    return outcome.value;
  }

  it('grades each of 100 tasks: solved 1, otherwise and untouched 0', async () => {
    const grades = await gradesOf(service);
    expect(grades.size).toBe(300);
    for (const [name, grade] of grades) expect(grade, name).toBe(name.endsWith('/gold') ? 1 : 0);
    await eventually(running).toBe(0);
  });

  it('lets a solution answer by the tool that its task asks for', async () => {
    const backend = backendOf();
    const asked = known.tasks.find(({ prompt }) => prompt.startsWith('Which hotel')) as Task;
    const task = { ...asked, prompt: `${asked.prompt} Give your answer with submit_final_answer.` };
    const input = { task, solution: solutionOf(task), ledger: new FailureLedger([]) };
    const result = await checkGate(backend, 'solution', input, quiet);
    expect(result).toMatchObject({ passed: true, value: 1, errors: 0 });
    // A demonstration shows the call, and nothing after it.
    expect(result.messages?.at(-1)?.content).toContain('"submit_final_answer"');
    expect(await checkGate(backend, 'nothing', input, quiet)).toMatchObject({ passed: true, value: 0 });
    await backend.close();
  });

  it('offers the tools of both servers but `computer`, in one list for all episodes', async () => {
    const backend = backendOf();
    const [one, other] = [await open(backend, taskAt(0)), await open(backend, taskAt(1))];
    expect(one.tools.map(({ name }) => name)).toContain('create_booking');
    expect(one.tools.map(({ name }) => name)).not.toContain('computer');
    expect(other.tools).toBe(one.tools);
    expect(await one.callTool({ name: 'no_such', arguments: {} }, { turn: 0, tryNumber: 0 })).toMatchObject({
      isError: true,
    });
    await Promise.all([one.close(), other.close(), backend.close()]);
  });

  it('adopts the instance whose making was not answered', async () => {
    await service.control({ drop_create_reply: 1 });
    const backend = backendOf();
    const before = (await instances()).length;
    const environment = await open(backend, taskAt(0));
    expect((await instances()).length).toBe(before + 1);
    expect(await solve(environment, solutionOf(taskAt(0)))).toBe(1);
    await environment.close();
    await backend.close();
    await eventually(running).toBe(0);
  });

  it('does not adopt the world of an attempt that still plays', async () => {
    const backend = backendOf();
    const first = await open(backend, taskAt(0), { episodeId: 'e' });
    const second = await open(backend, taskAt(0), { episodeId: 'e' });
    expect(await solve(first, solutionOf(taskAt(0)))).toBe(1);
    expect((await second.grade({ finalAnswer: '', tryNumber: 0 })).outcome.value).toBe(0);
    await Promise.all([first.close(), second.close()]);
    await backend.close();
  });

  it('sends a call once, and gives up the world when its answer is lost', async () => {
    const backend = backendOf();
    const environment = await open(backend, taskAt(0));
    const [call] = solutionOf(taskAt(0)).calls as [Solution['calls'][0]];
    const before = (await service.log()).calls.length;
    await service.control({ drop_call_reply: 1 });
    await expect(environment.callTool(call, { turn: 0, tryNumber: 0 })).rejects.toMatchObject({
      ...{ kind: 'unavailable', reason: 'socket_lost' },
    });
    expect((await service.log()).calls.length).toBe(before + 1);
    await environment.close();
    await backend.close();
    await eventually(running).toBe(0);
  });

  it('hears at once that the connection ended after the answer had begun', async () => {
    const backend = backendOf();
    const environment = await open(backend, taskAt(0));
    const instance_id = (await instances()).find(({ status }) => status !== 'stopped')?.instance_id ?? '';
    const proxy = await proxyTo(service.url, 'cuts');
    const session = await McpSession.open(`${proxy.url}/${instance_id}/`, service.key, quiet);
    const begun = performance.now();
    await expect(session.call({ name: 'get_profile', arguments: {} }, 30_000)).rejects.toMatchObject({
      ...{ kind: 'unavailable', reason: 'socket_lost' },
    });
    expect(performance.now() - begun).toBeLessThan(10_000);
    await session.close();
    await proxy.close();
    await environment.close();
    await backend.close();
  });

  it('loses no call because the stream of the one before ends late', async () => {
    const backend = backendOf();
    const environment = await open(backend, taskAt(0));
    const instance_id = (await instances()).find(({ status }) => status !== 'stopped')?.instance_id ?? '';
    const proxy = await proxyTo(service.url, 'late');
    const session = await McpSession.open(`${proxy.url}/${instance_id}/`, service.key, quiet);
    await service.control({ slow_call_s: 1.5 });
    for (let call = 0; call < 3; call++)
      expect(await session.call({ name: 'get_profile', arguments: {} }, 30_000)).toMatchObject({
        isError: false,
      });
    await session.close();
    await proxy.close();
    await environment.close();
    await backend.close();
  });

  it.each<[string, FleetFaults]>([
    ['its gate answers 404 while it starts', { app_starts_s: 12 }],
    ['it answers 404 when asked for its tools', { hide_tools: 0.6 }],
  ])('never leaves out the tools of the app: %s', async (_, fault) => {
    await service.control(fault);
    const backend = backendOf();
    const environment = await open(backend, taskAt(0));
    expect(environment.tools.map(({ name }) => name)).toContain('create_booking');
    await environment.close();
    await backend.close();
  });

  it.each([{}, { drop_create_reply: 1 }])(
    'gives up an instance whose reset may come late: %j',
    async (made) => {
      await service.control({ ...made, drop_reset_reply: 1 });
      const backend = backendOf();
      await expect(open(backend, taskAt(0))).rejects.toMatchObject({
        ...{ kind: 'unavailable', reason: 'socket_lost' },
      });
      await backend.close();
      await eventually(running).toBe(0);
    },
  );

  it('plays in a new instance that refuses its reset, but in none that it adopts', async () => {
    await service.control({ fail_reset: 1 });
    const backend = backendOf();
    const environment = await open(backend, taskAt(0));
    expect(await solve(environment, solutionOf(taskAt(0)))).toBe(1);
    await service.control({ drop_create_reply: 1 });
    await expect(open(backend, taskAt(0))).rejects.toMatchObject({ kind: 'failed', reason: 'reset' });
    await environment.close();
    await backend.close();
  });

  it('sends heartbeats to the region that Fleet names, at once for an instance that it adopts', async () => {
    await service.control({ drop_create_reply: 1 });
    const backend = backendOf({ region: 'eu-west-2' });
    const environment = await open(backend, taskAt(0));
    const instance_id = (await instances()).find(({ status }) => status !== 'stopped')?.instance_id ?? '';
    const beats = async () =>
      (await service.log()).heartbeats.filter((beat) => beat.instance_id === instance_id);
    await eventually(beats).toContainEqual({ instance_id, region: 'eu-west-2' });
    const orchestrator = new Orchestrator(fleetRequests(service.url, service.key));
    await orchestrator.heartbeat({ id: instance_id, heartbeatRegion: 'eu-west-2' });
    await expect(orchestrator.heartbeat({ id: instance_id })).rejects.toThrow('no heartbeats in region None');
    await environment.close();
    await backend.close();
  });

  it('charges a call that takes too long, and the end of its time, to the episode', async () => {
    const backend = backendOf({ callTimeoutMs: 500, ttlSeconds: 20 });
    const [call] = solutionOf(taskAt(0)).calls as [Solution['calls'][0]];
    const [slow, late] = [await open(backend, taskAt(0)), await open(backend, taskAt(0))];
    await service.control({ slow_call_s: 3 });
    await expect(slow.callTool(call, { turn: 0, tryNumber: 0 })).rejects.toMatchObject({
      ...{ kind: 'failed', reason: 'timeout' },
    });
    await service.control({ slow_call_s: 0 });
    await delay(20_000);
    await expect(late.callTool(call, { turn: 0, tryNumber: 0 })).rejects.toMatchObject({
      ...{ kind: 'failed', reason: 'expired' },
    });
    await Promise.all([slow.close(), late.close()]);
    await backend.close();
  });

  it('does not charge the end of an instance before its time', async () => {
    const backend = backendOf();
    const environment = await open(backend, taskAt(0));
    const [call] = solutionOf(taskAt(0)).calls as [Solution['calls'][0]];
    await service.control({ expire_all: true });
    await expect(environment.callTool(call, { turn: 0, tryNumber: 0 })).rejects.toMatchObject({
      ...{ kind: 'unavailable', reason: 'socket_lost' },
    });
    await environment.close();
    await backend.close();
  });

  it('ends what it was making when the episode is called off', async () => {
    await service.control({ provision_s: 2 });
    const backend = backendOf();
    const stop = new AbortController();
    const opening = open(backend, taskAt(0), { signal: stop.signal });
    await eventually(running).toBe(1);
    stop.abort(new Error('called off'));
    await expect(opening).rejects.toThrow('called off');
    await eventually(running).toBe(0);
    await backend.close();
  });

  it('ends an instance that Fleet has named when the episode is called off', async () => {
    await service.control({ drop_create_reply: 1, provision_s: 600, limit_polls: 1 });
    const backend = backendOf();
    const stop = new AbortController();
    const opening = open(backend, taskAt(0), { signal: stop.signal });
    await eventually(async () => (await service.log()).faults.limit_polls).toBeGreaterThan(0);
    await delay(500);
    stop.abort(new Error('called off'));
    await expect(opening).rejects.toThrow('called off');
    await eventually(running).toBe(0);
    await backend.close();
  });

  it('opens nothing after its end', async () => {
    await service.control({ provision_s: 2 });
    const backend = backendOf();
    const opening = open(backend, taskAt(0));
    await eventually(running).toBe(1);
    const refused = expect(opening).rejects.toThrow('closed');
    await backend.close();
    await refused;
    await expect(open(backend, taskAt(0))).rejects.toThrow('closed');
    await eventually(running).toBe(0);
  });

  it('waits for a place where the account is full', async () => {
    await service.control({ instance_limit: 1 });
    const backend = backendOf();
    const first = await open(backend, taskAt(0));
    const waits: string[] = [];
    const second = backend.open(
      taskAt(1),
      { seed: 1, tryNumber: 0, episodeId: 'waits', run, onWait: (reason) => waits.push(reason) },
      quiet,
    );
    await eventually(() => waits.join()).toContain('running instances');
    await first.close();
    await (await second).close();
    await backend.close();
  });

  it('deletes what a killed process of the same owner left, and nothing of another', async () => {
    const left = backendOf({}, 'killed');
    await open(left, taskAt(0), { episodeId: 'e' });
    const other = backendOf();
    const others = await open(other, taskAt(0));
    const next = backendOf({}, 'killed');
    await eventually(running).toBe(1);
    // The same opening: its request id is spent.
    const again = await open(next, taskAt(0), { episodeId: 'e' });
    expect(await solve(again, solutionOf(taskAt(0)))).toBe(1);
    await Promise.all([again.close(), others.close()]);
    await Promise.all([next.close(), other.close()]);
    await eventually(running).toBe(0);
  });

  it('repeats a deletion until it is answered', async () => {
    await service.control({ fail_delete: 0.5, drop_delete_reply: 0.3 });
    const backend = backendOf();
    const opened = await Promise.all(known.tasks.slice(0, 6).map((task) => open(backend, task)));
    await Promise.all(opened.map((environment) => environment.close()));
    await backend.close();
    await eventually(running).toBe(0);
  });

  it.each([
    [{ lock: true }, 'canary'],
    [{ lock_while_verifying: 1 }, 'canary'],
    [{ databases: 0 }, 'canary'],
    [{ result_none: 1 }, 'no_number'],
  ])('gives no grade while the service has %j', async (fault, reason) => {
    const backend = backendOf();
    const environment = await open(backend, taskAt(0));
    await service.control(fault);
    await expect(environment.grade({ finalAnswer: '', tryNumber: 0 })).rejects.toMatchObject({
      ...{ kind: 'failed', reason },
    });
    await service.control(calm);
    await environment.close();
    await backend.close();
  });
});
