// Tasks of a server that is away: whoever can wait does, and a person at the command line is told at once.
import { describe, expect, it } from 'vitest';
import { mendsItself } from '../../src/activities/attempt/repeated-failures.js';
import { refuseBadFiles } from '../../src/data/dataset-validation.js';
import { gatherTasks } from '../../src/data/preparation/preparation.js';
import { readDataFiles, takeUpDataset } from '../../src/data/run-dataset.js';
import { parseDatasetSpec } from '../../src/spec/dataset-spec.js';
import { parseRunSpec } from '../../src/spec/spec-input.js';
import { specFor, testTasks } from '../activities/fixture.js';
import { startTaskServer } from '../environments/task-server.js';
import { ownFolder } from '../support/scratch-folder.js';
import { memoryStore } from '../workers/follower/memory-store.js';

const specOf = (tasks: string) => {
  const spec = parseRunSpec({ ...specFor({ tasks, demonstrations: '/t/d.jsonl' }), warm_start: [] });
  const { demonstrations: _, ...data } = spec.data;
  return { ...spec, data };
};
const rows = testTasks();

describe.each([
  ['429', 429, /num_tasks answers with 429/],
  ['502', 502, /with 502/],
  ['503', 503, /with 503/],
])('tasks of a server that answers %s', (_, status, words) => {
  it('can be read later', async () => {
    const server = await startTaskServer(rows);
    Object.assign(server, { status, refusals: 2 });
    const { data } = specOf(server.address);
    for (let refused = 0; refused < 2; refused++) {
      const error: unknown = await readDataFiles(data).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({
        name: 'EnvironmentError',
        message: expect.stringMatching(words) as string,
      });
      expect(mendsItself(error as Error)).toBe(true);
    }
    expect((await readDataFiles(data)).tasks).toHaveLength(rows.length);
  });

  it('make a check of the spec fail at once', async () => {
    const server = await startTaskServer(rows);
    Object.assign(server, { status, refusals: Infinity });
    await expect(refuseBadFiles(specOf(server.address))).rejects.toMatchObject({
      ...{ name: 'InvalidSpec', message: expect.stringMatching(words) as string },
    });
    expect(server.requests).toBe(1);
  });
});

describe('tasks of a server that is down', () => {
  const down = 'openenv+http://127.0.0.1:1/tracker';

  it('can be read later, also for a dataset, which a thread reads', async () => {
    const spec = parseDatasetSpec({
      ...{ name: 'd', version: '1', tasks: down, environments: [{ env_key: 'tracker' }] },
    });
    for (const read of [
      () => readDataFiles(specOf(down).data),
      () => gatherTasks(`dir:${ownFolder()}`, spec),
    ]) {
      const error: unknown = await read().catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({
        name: 'EnvironmentError',
        message: expect.stringContaining('answer') as string,
      });
      expect(mendsItself(error as Error)).toBe(true);
    }
  });

  it('make a check of the spec fail at once', async () => {
    await expect(refuseBadFiles(specOf(down))).rejects.toMatchObject({
      ...{ name: 'InvalidSpec', message: expect.stringContaining('does not answer') as string },
    });
  });
});

it('the listing ends with the start that asked for it', async () => {
  const server = await startTaskServer(rows);
  server.isSilent = true;
  const start = new AbortController();
  const listing = takeUpDataset(memoryStore(), specOf(server.address), start.signal);
  await expect.poll(() => server.requests).toBe(1);
  start.abort(new Error('the start is over'));
  await expect(listing).rejects.toThrow(/^the start is over$/);
});
