// Datasets whose evaluations would say nothing are named as such.
import { expect, test } from 'vitest';
import { datasetWarnings } from '../../src/data/dataset-warnings.js';
import type { Task } from '../../src/spec/records/task.js';

const task = (task_key: string, split: Task['split'], change: Partial<Task> = {}): Task => ({
  ...{ task_key, split, prompt: `Do ${task_key}.`, env_key: 'crm', env_variables: {} },
  ...{ difficulty: 1, template: 'crm' },
  ...change,
});

test('a dataset with other prompts on each side has no warning', () => {
  expect(datasetWarnings([task('a', 'train'), task('b', 'held_out')])).toEqual([]);
  expect(datasetWarnings([])).toEqual([]);
});

test('no held-out task', () => {
  expect(datasetWarnings([task('a', 'train')])).toEqual([
    expect.stringMatching(/^no task is held out, .*"split": "held_out"/),
  ]);
});

test('held-out prompts that are trained on under another key', () => {
  const prompt = 'Refund order 17.';
  const tasks = [
    task('a', 'train', { prompt }),
    task('b', 'held_out', { prompt: ' refund  order 17. ' }),
    task('c', 'held_out', { prompt }),
    task('d', 'held_out'),
  ];
  expect(datasetWarnings(tasks)).toEqual([
    expect.stringMatching(
      /^2 held-out tasks have the prompt of a training task under another key, such as b that of a: /,
    ),
  ]);
});

test.each<[string, Partial<Task>]>([
  ['another environment', { env_key: 'mail' }],
  ['other variables', { env_variables: { LOGGED_IN_NAME: 'Ada' } }],
  ['a prompt that the environment shows', { prompt: '' }],
])('%s is no repetition', (_, change) => {
  const same = { prompt: 'Refund order 17.' };
  const first = change.prompt === '' ? change : same;
  expect(datasetWarnings([task('a', 'train', first), task('b', 'held_out', { ...same, ...change })])).toEqual(
    [],
  );
});
