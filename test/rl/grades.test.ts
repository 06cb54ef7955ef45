// What a person is told to do where too few outcomes are graded.
import { expect, test } from 'vitest';
import { lackOfGrades } from '../../src/rl/grades.js';
import { environmentReasons } from '../../src/spec/records/episode.js';

const adviceFor = (reason: string): string => {
  const outcome = { status: 'unknown' as const, reason, failures: 3 };
  const observed = {} as Parameters<typeof lackOfGrades>[0][number]['observed'];
  return (
    lackOfGrades([{ env_key: 'x', outcome, observed }], 0.5)
      ?.split('). ')
      .at(-1) ?? ''
  );
};

test('each reason of an environment has advice of its own', () => {
  const advice = environmentReasons.map((reason) => adviceFor(reason).replace(/^.*?\) x: \w+\. /, ''));
  expect(new Set(advice).size).toBe(environmentReasons.length);
  expect(adviceFor('no_number')).toContain('Let the verifiers of these tasks return a number');
});

test.each(['constructor', 'of_another_version'])(
  'a reason that is not known sends to the log: %s',
  (reason) => {
    expect(adviceFor(reason)).toContain('Read the log of the environment server');
  },
);
