// The gate `repeat` plays a solution as often as the dataset's spec says, and one other grade fails it.
import { expect, test } from 'vitest';
import { checkGate } from '../../src/data/preparation/gates.js';
import type { EnvironmentBackend } from '../../src/environments/environment.js';
import { FailureLedger } from '../../src/episode/failure-ledger.js';
import type { Task } from '../../src/spec/records/task.js';

const task: Task = {
  ...{ task_key: 'a', prompt: 'Do it.', env_key: 'crm', env_variables: {} },
  ...{ difficulty: 1, template: 'crm', split: 'train' },
};

/** An environment that grades its episodes in this order; `opened`: their names. */
function grading(values: readonly number[], opened: string[]): EnvironmentBackend {
  return {
    open: (_task: Task, { episodeId }: { episodeId: string }) => {
      const value = values[opened.push(episodeId) - 1] ?? NaN;
      return Promise.resolve({
        tools: [],
        grade: () => Promise.resolve({ outcome: { value }, explanation: '' }),
        close: () => Promise.resolve(),
      });
    },
  } as unknown as EnvironmentBackend;
}

test.each<[string, number[], number | undefined, object, number]>([
  ['once, if the spec says nothing', [1, 0], undefined, { passed: true, value: 1 }, 1],
  ['three times', [1, 1, 1], 3, { passed: true, value: 1 }, 3],
  [
    'until another grade comes',
    [1, 0, 1],
    3,
    {
      passed: false,
      value: 0,
      reason: 'the solution is graded 1, and 0 when it is played again (time 2 of 3)',
    },
    2,
  ],
])('a solution is played again %s', async (_, values, repeats, result, plays) => {
  const opened: string[] = [];
  const input = {
    ...{ task, solution: { task_key: 'a', calls: [], final_answer: '' }, first: { value: 1 } },
    ...{ ledger: new FailureLedger([]), ...(repeats === undefined ? {} : { repeats }) },
  };
  const found = await checkGate(grading(values, opened), 'repeat', input, new AbortController().signal);
  expect(found).toMatchObject(result);
  expect(new Set(opened).size).toBe(plays);
});
