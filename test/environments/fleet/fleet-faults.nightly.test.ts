// No fault of Fleet and no kill of a node makes a false grade, or leaves an instance.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { gateTasks } from '../../../src/activities/data/gate-tasks.js';
import { gatherDataset } from '../../../src/activities/data/gather-dataset.js';
import { openStore } from '../../../src/store/open-store.js';
import { pythonWith } from '../../support/python/python-environments.js';
import { scratchFolder } from '../../support/scratch-folder.js';
import { calm, type FleetService, startFleetService } from './fleet-service.js';
import { faultsAt, killNode, playWithFaults } from './measures.js';

const python = await pythonWith('fleet');

describe.skipIf(!python)('Fleet with faults', () => {
  const folder = scratchFolder();
  let service: FleetService;
  beforeAll(async () => {
    service = await startFleetService(python);
  });
  afterAll(() => service?.stop());

  it('grades no solved task 0 while a twentieth of everything fails', async () => {
    const figures = await playWithFaults(service, faultsAt(0.05));
    expect(figures).toMatchObject({ episodes: 100, false_zeros: 0, left: 0 });
    expect(figures.met_a_fault).toBeGreaterThan(10);
    expect(figures.unknown).toBeLessThan(20);
  });

  it('grades nothing while every database is locked', async () => {
    const figures = await playWithFaults(service, { lock: true }, { tasks: 8 });
    expect(figures).toMatchObject({ episodes: 8, false_zeros: 0, unknown: 8, left: 0 });
  });

  it('ends the preparation of a dataset whose instances die under every call', async () => {
    process.env.FLEET_KEY_OF_TESTS = service.key;
    await service.control({ ...calm, drop_call_reply: 1 });
    const store = await openStore(`dir:${join(folder, 'store')}`);
    const spec = {
      ...{ name: 'harbour', version: 'v1', parallel: 2 },
      tasks: join(service.tasks, 'tasks.json'),
      solutions: join(service.tasks, 'solutions.jsonl'),
      environments: [
        { env_key: '*', kind: 'fleet', url: service.url, api_key_env: 'FLEET_KEY_OF_TESTS', max_sessions: 2 },
      ],
    };
    const { signal } = new AbortController();
    await gatherDataset({ store }, { spec }, signal);
    const gated = await gateTasks(
      { store },
      { spec, from: 0, to: 2 },
      { signal, progress: () => undefined, recorded: () => undefined },
    );
    expect(gated).toEqual({ passed: 0, failed: 2 });
  });

  it('makes no instance twice and leaves none when the node is killed 5 times and answers are lost', async () => {
    const figures = await killNode(service, 5);
    expect(figures).toMatchObject({ kills: 5, solved: 100, left: 0, made_twice: 0 });
    expect(figures.made).toBeGreaterThanOrEqual(100);
  });
});
