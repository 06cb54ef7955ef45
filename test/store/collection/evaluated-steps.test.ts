import { describe, expect, test } from 'vitest';
import {
  type FoundEvaluation,
  rankSteps,
  sortEvaluations,
} from '../../../src/store/collection/evaluated-steps.js';
import { digestOf, recordsOfAllKinds } from '../fixtures.js';

const { evaluation } = recordsOfAllKinds();

function found(step: number, suite: string, pass_at_1: number | null | 'unread'): FoundEvaluation {
  const isRead = pass_at_1 !== 'unread';
  return {
    ...{ step, suite, state: digestOf('b') + String(step) },
    result: isRead ? { ...evaluation, suite, pass_at_1 } : null,
    problem: isRead ? null : `${suite} of ${step} is damaged`,
    ranks: true,
  };
}

describe('the best steps', () => {
  test('are ranked on the suite with most evaluations; of two equal steps, the newer step is first', () => {
    const evaluations = [
      found(10, 'a', 0.4),
      found(20, 'a', 0.9),
      found(30, 'a', 0.4),
      found(40, 'a', 0.5),
      found(50, 'a', null),
      found(0, 'b', 0.1),
      found(40, 'b', 1),
      { ...found(60, 'a', 1), ranks: false },
    ];
    expect(rankSteps(evaluations)).toEqual({ best: [20, 40, 30, 10], unranked: [] });
    expect(rankSteps([])).toEqual({ best: [], unranked: [] });
  });

  test('are ranked on that suite even if some of its results cannot be read', () => {
    const evaluations = [
      found(10, 'a', 0.4),
      found(20, 'a', 'unread'),
      found(30, 'a', 'unread'),
      found(10, 'b', 0.9),
      found(20, 'b', 0.8),
    ];
    expect(rankSteps(evaluations)).toEqual({ best: [10], unranked: [20, 30] });
    const sameState = { ...found(30, 'a', 'unread'), step: 40 };
    expect(rankSteps([...evaluations, sameState]).unranked).toEqual([20, 40]);
  });
});

test('an evaluation of a state that several steps share is listed once', () => {
  const [first, again] = [found(1, 'a', 0.5), { ...found(1, 'a', 0.5), step: 2 }];
  const [unread, other] = [found(3, 'a', 'unread'), found(4, 'a', 0.5)];
  const unknown = { ...other, result: { ...evaluation, unknown: 1 } };
  expect(sortEvaluations([first, again, unread, { ...unread, step: 5 }, unknown])).toEqual({
    whole: [{ step: 1, state: first.state, suite: 'a' }],
    unread: [{ step: 3, problem: 'a of 3 is damaged' }],
  });
});
