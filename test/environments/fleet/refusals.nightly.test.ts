// What a run on Fleet refuses at its start.
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { refuseUnplayable, refuseVerifiers } from '../../../src/data/environment-check.js';
import { askIdentities } from '../../../src/activities/evaluation/environment-identities.js';
import { fleetText } from '../../../src/cli/stack/environment-checks.js';
import { toolListsOf } from '../../../src/data/tool-lists.js';
import type { EnvironmentSpec } from '../../../src/spec/run-spec.js';
import type { Task } from '../../../src/spec/records/task.js';
import { pythonWith } from '../../support/python/python-environments.js';
import { readFleetTasks } from './fixture.js';
import { calm, type FleetService, startFleetService } from './fleet-service.js';

const python = await pythonWith('fleet');
const quiet = new AbortController().signal;
const variable = 'FLEET_KEY_OF_TESTS';

describe.skipIf(!python)('a run on Fleet', () => {
  let service: FleetService;
  let tasks: readonly Task[];
  beforeAll(async () => {
    service = await startFleetService(python);
    ({ tasks } = readFleetTasks(service.tasks));
  });
  afterAll(async () => {
    vi.unstubAllEnvs();
    await service?.stop();
  });
  afterEach(() => service.control(calm));

  const entry = (more: Partial<EnvironmentSpec> = {}): EnvironmentSpec => ({
    ...{ env_key: '*', kind: 'fleet', url: service.url, api_key_env: variable },
    ...more,
  });
  const begun = (more?: Partial<EnvironmentSpec>, played: readonly Task[] = tasks) => {
    if (process.env[variable] === undefined) vi.stubEnv(variable, service.key);
    return refuseUnplayable([entry(more)], quiet, played);
  };
  const task = (): Task => tasks[0] as Task;

  it('begins where all is right, also where Fleet is away', async () => {
    await begun();
    await begun({ url: 'http://127.0.0.1:9' });
  });

  it.each<[string, () => Promise<unknown>, RegExp]>([
    ['a variable that is not set', () => begun({ api_key_env: 'NOT_SET_HERE' }), /NOT_SET_HERE.*not set/],
    ['an unknown region', () => begun({ region: 'moon' }), /no region "moon".*its regions: /s],
    [
      'an unknown environment',
      () => begun({}, [{ ...task(), env_key: 'nowhere' }]),
      /no environment "nowhere"/,
    ],
    [
      'an unknown version',
      () => begun({}, [{ ...task(), env_version: 'v9' }]),
      /no version v9.*its versions/s,
    ],
    [
      'a task without a verifier',
      () => {
        const { verifier: _, ...without } = task();
        return begun({}, [without, task()]);
      },
      /1 of 2 tasks have no verifier, for example/,
    ],
    [
      'a task for a model that sees',
      () => begun({}, [{ ...task(), modality: 'computer_use' }]),
      /computer use/,
    ],
  ])('refuses %s', async (_, start, message) => {
    await expect(start()).rejects.toThrow(message);
  });

  it('refuses a wrong key, and an account that may run nothing', async () => {
    vi.stubEnv(variable, 'wrong');
    await expect(begun()).rejects.toThrow(/put a valid key into FLEET_KEY_OF_TESTS/);
    vi.stubEnv(variable, service.key);
    await service.control({ instance_limit: 0 });
    await expect(begun()).rejects.toThrow(/may run 0 instances/);
  });

  it('refuses a key that no header can carry, and does not show it', async () => {
    vi.stubEnv(variable, 'a-secret-key\nof two lines');
    const refused = begun();
    await expect(refused).rejects.toThrow(/FLEET_KEY_OF_TESTS.* line ends/);
    await expect(refused).rejects.not.toThrow(/secret-key/);
    vi.stubEnv(variable, service.key);
  });

  it('refuses a verifier without a function, and so does the doctor', async () => {
    vi.stubEnv(variable, service.key);
    const verifiers = new Map([[task().verifier ?? '', 'x = 1']]);
    const [environment, played] = [entry(), tasks.slice(0, 2)];
    const words = new RegExp(
      `1 tasks define no function that takes .*, for example that of ${task().task_key}`,
    );
    expect(() => refuseVerifiers([environment], played, verifiers)).toThrow(words);
    await expect(fleetText(environment, [environment], { tasks: played, verifiers })).rejects.toThrow(words);
  });

  it('shows demonstrations the tools of an instance, and leaves none', async () => {
    vi.stubEnv(variable, service.key);
    const lists = await toolListsOf([task().env_key], [task()], [entry()]);
    expect(lists[task().env_key]?.length).toBeGreaterThan(8);
    expect((await service.log()).instances.filter(({ status }) => status !== 'stopped')).toEqual([]);
  });

  it('tells evaluations apart by the versions of their tasks', async () => {
    const identity = async (played: Task): Promise<unknown> =>
      askIdentities([played.env_key], {
        ...{ environments: [entry()], tasks: [played], callTimeoutS: 10, maxWaitS: 10 },
        ...{ signal: quiet, onWait: () => undefined },
      });
    expect(await identity(task())).toEqual(await identity(task()));
    expect(await identity({ ...task(), env_version: 'v2' })).not.toEqual(await identity(task()));
  });
});
