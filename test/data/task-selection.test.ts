// Tasks that a spec selects, and the split of SkyRL Fleet Training, whose results on a dataset of its size are known.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseTasks } from '../../src/data/task-file.js';
import {
  type Exclusion,
  fractionOf,
  NothingSelected,
  selectTasks,
  splitAsBefore,
} from '../../src/data/task-selection.js';
import type { Task } from '../../src/spec/records/task.js';

const counts = {
  ...{ amazon: 18, booking: 1336, carlisle: 38, dropbox: 3, fira: 66, fostgres: 949, github: 2081 },
  ...{
    'google-maps': 4727,
    hubspot: 19,
    outlook: 39,
    reddit: 455,
    ticketmaster: 257,
    wallst: 69,
    zillow: 118,
  },
};

function task(task_key: string, env_key: string, change: Partial<Task> = {}): Task {
  const usual = { prompt: 'Do it.', env_variables: {}, difficulty: 1, template: env_key };
  return { task_key, env_key, ...usual, split: 'train', ...change };
}

const all = Object.entries(counts).flatMap(([env, count]) =>
  Array.from({ length: count }, (_, index) => task(`${env}_task_${index}`, env)),
);
const sides = (tasks: readonly Task[]) => [
  tasks.filter(({ split }) => split === 'train').length,
  tasks.filter(({ split }) => split === 'held_out').length,
];
/** `dropbox` is left out there. */
const split = (change: object = {}) =>
  selectTasks(all, {
    exclude_envs: ['dropbox'],
    split: { held_out_ratio: 0.2, max_held_out: 60, max_env_share: 0.2, ...change },
  });

describe('the split of SkyRL Fleet Training', () => {
  it('hashes keys as the Python code does', () => {
    expect(fractionOf('task_a')).toBe(0.17428208875080844);
    expect(fractionOf('task_b')).toBe(0.773202629502688);
    expect(fractionOf('github_456')).toBe(0.35872433908455537);
    expect(fractionOf('booking_789')).toBe(0.6994087068944244);
    expect(fractionOf('github_task_123')).toBe(0.15106076140974603);
  });

  it.each([
    [{}, 7228, 60],
    [{ held_out_ratio: 0.1 }, 7277, 60],
    [{ held_out_ratio: 0.1, max_held_out: 0 }, 7277, 134],
    [{ held_out_ratio: 0.02 }, 7341, 60],
  ])('with %j gives %i tasks to train and %i to evaluate', (change, train, heldOut) => {
    expect(all).toHaveLength(10_175);
    expect(sides(split(change))).toEqual([train, heldOut]);
  });

  it('holds the same tasks of each environment out', () => {
    const heldOut = split().filter((one) => one.split === 'held_out');
    const byEnv: Record<string, number> = {};
    for (const { env_key } of heldOut) byEnv[env_key] = (byEnv[env_key] ?? 0) + 1;
    expect(byEnv).toEqual({
      ...{
        booking: 6,
        carlisle: 6,
        fira: 6,
        fostgres: 6,
        github: 6,
        'google-maps': 6,
        outlook: 4,
        reddit: 5,
      },
      ...{ ticketmaster: 5, wallst: 5, zillow: 5 },
    });
    const keys = heldOut.map(({ task_key }) => task_key);
    for (const index of [247, 276, 1267, 1303]) expect(keys).toContain(`booking_task_${index}`);
    for (const index of [9, 14, 18, 5]) expect(keys).toContain(`carlisle_task_${index}`);
  });

  it('holds whole environments out', () => {
    const tasks = selectTasks(all, { held_out_envs: ['fira'] });
    expect(sides(tasks.filter(({ env_key }) => env_key === 'fira'))).toEqual([0, 66]);
    expect(sides(tasks)[1]).toBe(66);
    const marked = [task('a', 'mail', { split: 'held_out' }), task('b', 'mail'), task('c', 'shop')];
    expect(selectTasks(marked, { held_out_envs: ['shop'] }).map(({ split }) => split)).toEqual([
      ...['train', 'held_out', 'held_out'],
    ]);
  });
});

describe('a split that is frozen', () => {
  const before = [task('a', 'mail'), task('b', 'mail', { split: 'held_out' })];
  const known = new Map(before.map(({ task_key, split }) => [task_key, split]));

  it('keeps the side of each known task, and the row’s of each new one', () => {
    const now = [
      task('a', 'mail', { split: 'held_out' }),
      task('b', 'mail'),
      task('c', 'mail', { split: 'held_out' }),
    ];
    expect(splitAsBefore(now, known, null).map(({ task_key, split }) => `${task_key} ${split}`)).toEqual([
      ...['a train', 'b held_out', 'c held_out'],
    ]);
  });

  it('moves no known task when the data grows, and holds out new ones by their hash', () => {
    const half = all.filter((_, index) => index % 2 === 0);
    const first = selectTasks(half, { split: { held_out_ratio: 0.2, max_held_out: 0, max_env_share: 1 } });
    const sidesOf = new Map(first.map(({ task_key, split }) => [task_key, split]));
    const grown = splitAsBefore(all, sidesOf, 0.2);
    expect(grown).toHaveLength(all.length);
    for (const { task_key, split } of grown) expect(split).toBe(sidesOf.get(task_key) ?? split);
    const added = grown.filter(({ task_key, split }) => split === 'held_out' && !sidesOf.has(task_key));
    expect(added.length).toBeGreaterThan(100);
  });
});

describe('a selection', () => {
  const some = [
    task('a', 'mail', { difficulty: 2 }),
    task('b', 'mail', { modality: 'computer_use' }),
    task('c', 'shop'),
    task('d', 'shop', { difficulty: 3 }),
  ];
  const keys = (selection: object) => selectTasks(some, selection).map(({ task_key }) => task_key);

  it('takes tasks by modality, environment, difficulty and number, in the file’s order', () => {
    expect(keys({})).toEqual(['a', 'b', 'c', 'd']);
    expect(keys({ modality: 'tool_use' })).toEqual(['a', 'c', 'd']);
    expect(keys({ env_keys: ['shop'] })).toEqual(['c', 'd']);
    expect(keys({ difficulty: [2, 3] })).toEqual(['a', 'd']);
    expect(keys({ max_tasks: 3, exclude_envs: ['mail'] })).toEqual(['c']);
  });

  it('says of each task that it leaves out why', () => {
    const excluded: Exclusion[] = [];
    const again = [...some, task('a', 'mail', { difficulty: 3 })];
    expect(selectTasks(again, { modality: 'tool_use', difficulty: [2, 3] }, excluded)).toHaveLength(2);
    expect(excluded).toEqual([
      { task_key: 'b', stage: 'filter', reason: 'modality computer_use' },
      { task_key: 'c', stage: 'filter', reason: 'difficulty 1' },
      { task_key: 'a', stage: 'duplicate', reason: 'an earlier row has this key' },
    ]);
    const limited: Exclusion[] = [];
    const left = selectTasks(
      all,
      { split: { held_out_ratio: 0.2, max_held_out: 60, max_env_share: 0.2 } },
      limited,
    );
    expect(limited.length + left.length).toBe(all.length);
    expect(new Set(limited.map(({ stage }) => stage))).toEqual(new Set(['split']));
  });

  it('of nothing says what there is', () => {
    expect(() => keys({ env_keys: ['bank'] })).toThrow(NothingSelected);
    expect(() => keys({ env_keys: ['bank'] })).toThrow(
      'no task is left of 4: they have the environments mail, shop; the difficulties 1, 2, 3; the modalities computer_use, tool_use',
    );
  });
});

describe('a task file in another form', () => {
  const row = {
    ...{
      key: 'k1',
      prompt: 'Book a room.',
      env_id: 'booking',
      version: 'v3',
      data_id: 'd1',
      data_version: '7',
    },
    ...{ task_modality: 'tool_use', verifier_func: 'def verify(): return 1', difficulty: 2, created_at: 'x' },
    env_variables: { CURRENT_DATE: '2026-01-02', LOGGED_IN_USER: 17, EMPTY: null },
  };
  const texts = {
    array: JSON.stringify([row]),
    'object with tasks': JSON.stringify({ tasks: [row] }, null, 2),
    lines: `${JSON.stringify(row)}\n`,
  };

  it.each(Object.entries(texts))('as %s has the same tasks', (_, text) => {
    const verifiers = new Map<string, string>();
    const [read] = parseTasks(text, 'tasks.json', (sha256, code) => verifiers.set(sha256, code));
    expect(read).toEqual({
      ...{ task_key: 'k1', prompt: 'Book a room.', env_key: 'booking', template: 'booking', split: 'train' },
      ...{ env_version: 'v3', data_key: 'd1', data_version: '7', modality: 'tool_use', difficulty: 2 },
      env_variables: { CURRENT_DATE: '2026-01-02', LOGGED_IN_USER: '17' },
      verifier: [...verifiers.keys()][0],
    });
    expect([...verifiers.values()]).toEqual(['def verify(): return 1']);
  });

  it('names the row of an array that lacks something', () => {
    const { prompt: _, ...bare } = row;
    expect(() => parseTasks(JSON.stringify([row, { ...bare, key: 'k2' }]), 'tasks.json')).toThrow(
      'task 2: prompt is missing',
    );
  });

  it('is read whatever it holds, or refused as a bad data file', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        try {
          expect(parseTasks(text, 'tasks.json').length).toBeGreaterThan(0);
        } catch (error) {
          expect((error as Error).name).toBe('BadDataFile');
        }
      }),
    );
  });
});
