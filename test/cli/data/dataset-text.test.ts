// What `longhaul data prepare` and `longhaul data show` say of a dataset.
import { expect, test } from 'vitest';
import { failedLines } from '../../../src/cli/data/dataset-text.js';
import { trainingTasks } from '../../../src/report/format.js';

test('a single task is written in the singular', () => {
  expect([0, 1, 1200].map(trainingTasks)).toEqual([
    '0 training tasks',
    '1 training task',
    '1,200 training tasks',
  ]);
});

test('each reason for which tasks failed a check has a line', () => {
  expect(failedLines({ 'doing nothing is graded 1': 2, 'the solution is graded 0': 1 })).toEqual([
    'failed a check: 2 tasks, doing nothing is graded 1',
    'failed a check: 1 task, the solution is graded 0',
  ]);
  expect(failedLines({})).toEqual([]);
});
