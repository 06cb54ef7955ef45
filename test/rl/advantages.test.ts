import { describe, expect, test } from 'vitest';
import { groupAdvantages } from '../../src/rl/advantages.js';

const skyrl = { eps: 1e-6, deviation: 'sample' } as const;

describe('group-relative advantages', () => {
  test.each([
    [
      [1, 0, 0, 0],
      [1.499997, -0.499999, -0.499999, -0.499999],
    ],
    [
      [1, 1, 0, 0],
      [0.866024, 0.866024, -0.866024, -0.866024],
    ],
    [
      [1, 1, 1, 0],
      [0.499999, 0.499999, 0.499999, -1.499997],
    ],
  ])('of %j are what SkyRL computes', (rewards, expected) => {
    const advantages = groupAdvantages(rewards, skyrl);
    for (const [index, value] of expected.entries()) expect(advantages[index]).toBeCloseTo(value, 5);
  });

  test('use the population deviation where the recipe does', () => {
    const [first] = groupAdvantages([1, 0], { eps: 1e-4, deviation: 'population' });
    expect(first).toBeCloseTo(0.5 / 0.5001, 12);
  });

  test('of a group without a signal are none', () => {
    expect(groupAdvantages([1, 1, 1], skyrl)).toEqual([null, null, null]);
    expect(groupAdvantages([0.1, 0.1, 0.1], skyrl)).toEqual([null, null, null]);
  });

  test('leave unknown outcomes out of mean and deviation: unknown is never 0', () => {
    const [a, b, c] = groupAdvantages([1, null, 0], skyrl);
    expect([a, c]).toEqual(groupAdvantages([1, 0], skyrl));
    expect(b).toBeNull();
    expect(groupAdvantages([1, null, null], skyrl)).toEqual([null, null, null]);
  });
});
