// Tasks that a stock server lists itself.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readSourceText } from '../../../src/data/data-source.js';
import { parseTasks } from '../../../src/data/task-file.js';
import { readServerTasks } from '../../../src/environments/openenv/task-api.js';
import { pythonWith } from '../../support/python/python-environments.js';
import {
  type OpenEnvFixture,
  startGameServer,
  startOpenEnvFixture,
} from '../../support/servers/openenv-fixture.js';

const python = await pythonWith('openenv');
const oldPython = await pythonWith('openenv-core');
const quiet = new AbortController().signal;

describe.skipIf(!python || !oldPython)('tasks of a server', () => {
  let servers: Record<'paged' | 'whole' | 'without' | 'old', OpenEnvFixture>;
  beforeAll(async () => {
    const [paged, whole, without, old] = await Promise.all([
      startOpenEnvFixture(python, 1),
      startOpenEnvFixture(python, 1, undefined, { FIXTURE_WITHOUT_PAGES: '1' }),
      startGameServer(python, 'gym'),
      startOpenEnvFixture(oldPython, 1),
    ]);
    servers = { paged, whole, without, old };
  });
  afterAll(() => Promise.all(Object.values(servers ?? {}).map((server) => server.stop())));

  const read = (server: keyof typeof servers, split = 'train', env = 'fixture') =>
    readServerTasks(servers[server].url, env, split, quiet);

  it.each(['paged', 'whole'] as const)('that lists them %s are rows of a task file', async (server) => {
    const rows = await read(server);
    expect(rows).toHaveLength(1203);
    expect(rows[1202]).toEqual({
      ...{ task_key: 'train-1202', prompt: 'Count to 1202.', env_key: 'fixture' },
      reset: { split: 'train', index: 1202 },
    });
    expect(parseTasks(rows.map((row) => JSON.stringify(row)).join('\n'), 'tasks')).toHaveLength(1203);
  });

  it('have keys of their split where their own are numbers', async () => {
    expect(await readServerTasks(servers.paged.url, 'fixture', 'hard', quiet, { envKey: 'other' })).toEqual(
      [0, 1].map((index) => ({
        ...{ task_key: `fixture/hard/${index}`, prompt: `hard ${index}`, env_key: 'other', difficulty: 3 },
        reset: { split: 'hard', index },
      })),
    );
  });

  it('are a spec’s data by their address', async () => {
    const texts = await readSourceText(
      `openenv+${servers.paged.url}/fixture?split=train&held_out=hard&env_key=other`,
    );
    const tasks = parseTasks(texts, 'the server');
    expect(tasks.filter(({ split }) => split === 'train')).toHaveLength(1203);
    expect(tasks.filter(({ split }) => split === 'held_out')).toHaveLength(2);
    expect(new Set(tasks.map(({ env_key }) => env_key))).toEqual(new Set(['other']));
    await expect(readSourceText(`openenv+${servers.paged.url}/nothing`)).rejects.toThrow(
      /cannot be read: .* has no environment "nothing"; it has fixture/,
    );
  });

  it('cannot be read where there are none, and the error says what there is', async () => {
    await expect(read('paged', 'evening')).rejects.toThrow(
      /no tasks of "evening".*its splits are train, hard/,
    );
    await expect(read('paged', 'train', 'other')).rejects.toThrow(/no environment "other"; it has fixture/);
    await expect(read('old')).rejects.toThrow(/no Task API/);
    await expect(read('without', 'train', 'guess')).rejects.toThrow(/lists no tasks/);
  });

  it('are limited in bytes, and end with the signal', async () => {
    const { url } = servers.paged;
    await expect(readServerTasks(url, 'fixture', 'train', quiet, { maxBytes: 40_000 })).rejects.toThrow(
      /more than 40000 bytes/,
    );
    const late = AbortSignal.abort(new Error('over'));
    await expect(readServerTasks(url, 'fixture', 'train', late)).rejects.toThrow('over');
  });

  it('of a server that is gone are an error, too', async () => {
    await expect(readServerTasks('http://127.0.0.1:1', 'fixture', 'train', quiet)).rejects.toThrow(
      /does not answer/,
    );
  });
});
