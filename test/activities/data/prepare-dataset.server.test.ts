// A dataset is prepared by its three activities, on a real environment server.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { finishDataset } from '../../../src/activities/data/finish-dataset.js';
import { gateTasks } from '../../../src/activities/data/gate-tasks.js';
import { gatherDataset } from '../../../src/activities/data/gather-dataset.js';
import { takeUpDataset } from '../../../src/data/run-dataset.js';
import { DatasetCache } from '../../../src/data/dataset-cache.js';
import { readDatasetItems, requirePrepared } from '../../../src/data/prepared-dataset.js';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import type { Task } from '../../../src/spec/records/task.js';
import { parseRunSpec } from '../../../src/spec/spec-input.js';
import type { OpenedStore } from '../../../src/store/runs/episodes.js';
import { openStore } from '../../../src/store/open-store.js';
import { observationFrame, startScriptedServer } from '../../environments/scripted-server.js';
import { counterTask, startCounterServer, token } from '../../environments/stand-in.js';
import { environmentWith } from '../../support/environment-variables.js';
import { scratchFolder } from '../../support/scratch-folder.js';
import { specFor } from '../fixture.js';

const folder = scratchFolder();
let server: EnvironmentServer;
let store: OpenedStore;
let restore: () => void;
beforeAll(async () => {
  restore = environmentWith({ COUNTER_TOKEN: token });
  server = await startCounterServer();
  store = await openStore(`dir:${join(folder, 'store')}`);
});
afterAll(async () => {
  restore();
  await server.close();
});

const up = (count: number) => Array.from({ length: count }, () => ({ name: 'increment', arguments: {} }));
const write = (name: string, rows: readonly object[]): string => {
  const path = join(folder, name);
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return path;
};

const unknownTask = { ...counterTask(0), task_key: 'counter/down/1' };
const numbers = [0, 1, 2, 3, 4, 5];
const tasks = (): object[] =>
  [unknownTask, ...numbers.map(counterTask)].map(({ template: _, ...row }) => row);
const solutions = [
  { task_key: 'counter/up/0', calls: [] },
  { task_key: 'counter/up/1', calls: up(1), final_answer: 'one' },
  { task_key: 'counter/up/2', calls: up(3) },
  { task_key: 'counter/up/3', calls: [{ name: 'refuse' }, ...up(3)] },
  { task_key: 'counter/down/1', calls: up(1) },
];

const specOf = (version: string, change: object = {}) => ({
  ...{ name: 'counting', version },
  tasks: write(`tasks-${version}.jsonl`, tasks()),
  solutions: write(`solutions-${version}.jsonl`, solutions),
  environments: [{ env_key: 'counter', url: server.url, grading_token_env: 'COUNTER_TOKEN' }],
  ...change,
});
const scope = { signal: new AbortController().signal, progress: () => undefined, recorded: () => undefined };

async function prepare(spec: object) {
  await gatherDataset({ store }, { spec }, scope.signal);
  await gateTasks({ store }, { spec, from: 0, to: 3 }, scope);
  await gateTasks({ store }, { spec, from: 3, to: 10 }, scope);
  return finishDataset({ store }, { spec }, scope.signal);
}
const itemsOf = async <T>(version: string, path: string): Promise<T[]> =>
  readDatasetItems<T>(store, await requirePrepared(store, `counting@${version}`, ''), path);

describe('a dataset with solutions', () => {
  it('keeps a task if its solution is graded 1 and doing nothing is not', async () => {
    const result = await prepare(specOf('v1'));
    expect(result).toEqual({
      dataset: 'counting@v1',
      ...{ train_tasks: 4, held_out_tasks: 0, demonstrations: { solution: 1 } },
      excluded: { gate: 3 },
      failed: expect.objectContaining({
        'doing nothing is graded 1': 1,
        'the solution is graded 0': 1,
      }) as Record<string, number>,
      warnings: [expect.stringMatching(/^no task is held out/) as string],
    });
    expect(Object.keys(result.failed ?? {})).toHaveLength(3);
    const kept = await itemsOf<Task>('v1', 'tasks.jsonl');
    expect(kept.map(({ task_key }) => task_key)).toEqual(['1', '3', '4', '5'].map((n) => `counter/up/${n}`));
    expect(await itemsOf('v1', 'excluded.jsonl')).toEqual([
      {
        task_key: 'counter/down/1',
        stage: 'gate',
        reason: expect.stringMatching(/^the environment failed 3 times: /) as string,
      },
      { task_key: 'counter/up/0', stage: 'gate', reason: 'doing nothing is graded 1' },
      { task_key: 'counter/up/2', stage: 'gate', reason: 'the solution is graded 0' },
    ]);
  });

  it('shows a solution without mistakes as a demonstration, with what the environment answered', async () => {
    const [shown] = await itemsOf<{ task_key: string; messages: object[] }>('v1', 'demonstrations.jsonl');
    expect(shown?.task_key).toBe('counter/up/1');
    expect(shown?.messages).toEqual([
      { role: 'user', content: 'Count to 1.' },
      { role: 'assistant', content: '<tool_call>{"name":"increment","arguments":{}}</tool_call>' },
      { role: 'tool', content: '1' },
      { role: 'assistant', content: 'one <done>' },
    ]);
  });

  it('is a run’s data', async () => {
    const environments = specOf('v1').environments;
    const data = { source: 'counting@v1', eval_tasks: 1, final_eval_tasks: 1 };
    const own = { ...specFor({ tasks: '/t', demonstrations: '/d' }), data, environments, warm_start: [] };
    const reference = await takeUpDataset(store, parseRunSpec(own));
    expect(reference).toMatchObject({ name: 'counting', version: 'v1' });
    const dataset = await new DatasetCache(store).load(reference);
    expect(dataset.tasks).toHaveLength(4);
    expect(dataset.tools['counter']?.map(({ name }) => name)).toContain('increment');
    const other = parseRunSpec({ ...own, data: { ...data, source: 'counting@v9' } });
    await expect(takeUpDataset(store, other)).rejects.toThrow(
      /data\.source: .* has no prepared dataset counting@v9; there are counting@v1/,
    );
  });

  it('prepared again is the same, without playing anything', async () => {
    const { sessions } = (await (await fetch(`${server.url}/x/sessions`)).json()) as { sessions: number };
    const first = await finishDataset({ store }, { spec: specOf('v1') }, scope.signal);
    expect(await prepare(specOf('v1'))).toEqual(first);
    expect(await (await fetch(`${server.url}/x/sessions`)).json()).toMatchObject({ sessions });
  });

  it('does not take other bytes or another spec under a version that has begun', async () => {
    const spec = specOf('v1');
    writeFileSync(spec.tasks, `${JSON.stringify(counterTask(1))}\n`);
    await expect(gatherDataset({ store }, { spec }, scope.signal)).rejects.toThrow(
      /version: counting@v1 was begun from other bytes: .*; give a new version/,
    );
    const other = specOf('v1', { difficulty: [1] });
    await expect(gatherDataset({ store }, { spec: other }, scope.signal)).rejects.toThrow(
      /from another spec; these keys differ: difficulty/,
    );
  });

  it('keeps each known task on its side when it grows', async () => {
    const held = tasks().map((row, index) => (index === 2 ? { ...row, split: 'held_out' } : row));
    const first = specOf('w1');
    writeFileSync(first.tasks, held.map((row) => `${JSON.stringify(row)}\n`).join(''));
    await prepare(first);
    const grown = specOf('w2', { frozen: 'counting@w1' });
    writeFileSync(
      grown.tasks,
      [...tasks(), counterTask(7)].map((row) => `${JSON.stringify(row)}\n`).join(''),
    );
    expect(await prepare(grown)).toMatchObject({ train_tasks: 4, held_out_tasks: 1 });
    await expect(prepare(specOf('w3', { frozen: 'counting@w0' }))).rejects.toThrow(
      /frozen: .* has no prepared dataset/,
    );
  });
});

describe('a dataset that cannot be prepared has one error', () => {
  const refused = (version: string, change: object) =>
    expect(gatherDataset({ store }, { spec: specOf(version, change) }, scope.signal)).rejects;

  it.each<[string, () => object, RegExp]>([
    ['a missing file', () => ({ tasks: '/nowhere/tasks.jsonl' }), /nowhere.*cannot be read: ENOENT/s],
    [
      'a filter that leaves nothing',
      () => ({ env_keys: ['bank'] }),
      /no task is left of 7: .*environments counter/s,
    ],
    [
      'a solution of an unknown task',
      () => ({ solutions: write('other.jsonl', [{ task_key: 'counter/up/99' }]) }),
      /there is no task "counter\/up\/99"/,
    ],
    ['a solution without its server', () => ({ environments: [] }), /need the environment "counter"/],
    [
      'a server without an address',
      () => ({ environments: [{ env_key: 'counter' }] }),
      /environments\[0\]\.url: is missing/,
    ],
    [
      'a task of an environment that is not listed',
      () => ({ tasks: write('typo.jsonl', [counterTask(1), { ...counterTask(2), env_key: 'conter' }]) }),
      /1 task names the environment "conter", which is not listed; did you mean counter\?/,
    ],
    ['itself as frozen', () => ({ frozen: 'counting@x' }), /frozen: names the dataset itself/],
    ['a mistyped key', () => ({ solution: '/x' }), /there is no key "solution"; did you mean solutions\?/],
  ])('%s', async (_, change, message) => {
    await refused('x', change()).toThrow(message);
  });
});

it('is stopped within seconds if no server answers at an address', async () => {
  const begun = performance.now();
  const environments = [{ env_key: 'counter', url: 'http://127.0.0.1:9' }];
  await expect(
    gatherDataset({ store }, { spec: specOf('dead', { environments }) }, scope.signal),
  ).rejects.toThrow(
    /environments\[0\]\.url: http:\/\/127\.0\.0\.1:9 does not answer within 10 s: .*; start the server/,
  );
  expect(performance.now() - begun).toBeLessThan(25_000);
}, 40_000);

describe('an environment that gives no grade', () => {
  it('stops the preparation, and no task is recorded as broken', async () => {
    const unplayable = numbers.map((n) => ({ ...counterTask(n), task_key: `counter/down/${n}` }));
    const rows = [counterTask(1), ...unplayable];
    const spec = specOf('u1', {
      tasks: write('unplayable-tasks.jsonl', rows),
      solutions: write(
        'unplayable.jsonl',
        rows.map(({ task_key }) => ({ task_key, calls: up(1) })),
      ),
    });
    await gatherDataset({ store }, { spec }, scope.signal);
    expect(await gateTasks({ store }, { spec, from: 0, to: 1 }, scope)).toEqual({ passed: 1, failed: 0 });
    await expect(gateTasks({ store }, { spec, from: 1, to: 10 }, scope)).rejects.toMatchObject({
      name: 'NothingGraded',
      message: expect.stringMatching(/counter gave no grade to \d tasks in a row/) as string,
    });
    const records = await store.listFolder('datasets/counting/u1/gates/');
    expect(records).toHaveLength(3);
  });

  it('leaves no dataset without tasks', async () => {
    const spec = specOf('u2', {
      tasks: write('zero.jsonl', [counterTask(0)]),
      solutions: write('zero-solutions.jsonl', [{ task_key: 'counter/up/0' }]),
    });
    await expect(prepare(spec)).rejects.toThrow(
      /no task is left; 1 were left out because: doing nothing is graded 1/,
    );
  });
});

it('asks for the tools with the numbers of a task’s reset as they were written', async () => {
  const written = '"id":1915883588174806058,"rate":1.0';
  const scripted = await startScriptedServer({
    answers: ({ data }) => (data.type === 'list_tools' ? [] : [observationFrame({}, 0)]),
  });
  const tasksFile = join(folder, 'numbers.jsonl');
  writeFileSync(tasksFile, `{"task_key":"a","prompt":"Look.","env_key":"shop","reset":{${written}}}\n`);
  const spec = {
    ...{ name: 'numbers', version: 'v1', tasks: tasksFile },
    solutions: write('numbers-solutions.jsonl', [{ task_key: 'a', calls: [] }]),
    environments: [{ env_key: 'shop', url: scripted.url }],
  };
  await gatherDataset({ store }, { spec }, scope.signal);
  await scripted.close();
  const resets = scripted.texts.filter((text) => text.includes('"type":"reset"'));
  expect(resets.length).toBeGreaterThan(0);
  for (const text of resets) expect(text).toContain(written);
});
