import { expect, test } from 'vitest';
import { mostFrequentReason, reasonText } from '../../src/rl/grades.js';
import type { EpisodeRecord, Outcome } from '../../src/spec/records/episode.js';

const observed = {
  attempt: 1,
  execution: 'r/a/1',
  incarnation: 'a',
  failures: {},
  started_at: '',
  seconds: 1,
};
const graded: Outcome = { status: 'graded', value: 0 };
const unknown = (reason: string): Outcome => ({ status: 'unknown', reason, failures: 3 });
const episode = (env_key: string, outcome: Outcome, failure?: string) => ({
  ...{ env_key, outcome },
  observed: {
    ...observed,
    ...(failure === undefined ? {} : { failure }),
  } satisfies EpisodeRecord['observed'],
});

test('there is no reason if every outcome is graded', () => {
  expect(mostFrequentReason([episode('a', graded)])).toBeNull();
});

test('the most frequent reason is given, with its most frequent message', () => {
  const most = mostFrequentReason([
    episode('a', graded),
    episode('a', unknown('open'), 'no such task'),
    episode('b', unknown('grade'), 'once'),
    episode('b', unknown('grade'), 'it cannot grade'),
    episode('b', unknown('grade'), 'it cannot grade'),
  ]);
  expect(most).toEqual({ env_key: 'b', reason: 'grade', failure: 'it cannot grade', episodes: 3 });
  expect(most && reasonText(most)).toBe('b: grade: it cannot grade');
});

test('an episode whose server said nothing has no message', () => {
  expect(mostFrequentReason([episode('a', unknown('open'))])).toMatchObject({
    reason: 'open',
    failure: null,
  });
});
