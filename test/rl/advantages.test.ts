import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type GradedSample, groupAdvantages, stepAdvantages } from '../../src/rl/advantages.js';

const skyrl = { estimator: 'grpo', norm_by_std: true, deviation: 'sample', eps: 1e-6 } as const;
const rloo = { estimator: 'rloo' } as const;
const maxrl = { estimator: 'maxrl', eps: 1e-6 } as const;

function expectClose(found: readonly (number | null)[], expected: readonly (number | null)[]): void {
  expect(found).toHaveLength(expected.length);
  for (const [index, value] of expected.entries()) {
    if (value === null) expect(found[index]).toBeNull();
    else expect(found[index]).toBeCloseTo(value, 5);
  }
}

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
    expectClose(groupAdvantages(rewards, skyrl), expected);
  });

  test('use the population deviation if the recipe does', () => {
    const [first] = groupAdvantages([1, 0], { ...skyrl, eps: 1e-4, deviation: 'population' });
    expect(first).toBeCloseTo(0.5 / 0.5001, 12);
  });

  test('are differences from the mean if the deviation is left out (Dr. GRPO)', () => {
    expect(groupAdvantages([1, 0, 0, 0], { estimator: 'grpo', norm_by_std: false })).toEqual([
      0.75, -0.25, -0.25, -0.25,
    ]);
  });

  test('are differences from the mean of the other samples with rloo', () => {
    // (s − mean) · n / (n − 1) equals s minus the mean of the other samples.
    expectClose(groupAdvantages([1, 0, 0, 0], rloo), [1, -1 / 3, -1 / 3, -1 / 3]);
    const rewards = [0.5, 2, -1, 0.25];
    const others = rewards.map((reward, at) => {
      const rest = rewards.filter((_, index) => index !== at);
      return reward - rest.reduce((sum, value) => sum + value, 0) / rest.length;
    });
    expectClose(groupAdvantages(rewards, rloo), others);
  });

  test('are relative to the mean with maxrl', () => {
    expectClose(groupAdvantages([1, 0, 0, 0], maxrl), [2.999988, -0.999996, -0.999996, -0.999996]);
    expectClose(groupAdvantages([1, 1, 0, 0], maxrl), [0.999998, 0.999998, -0.999998, -0.999998]);
  });

  test('with maxrl never invert what is learned: a negative lowest reward counts as no success', () => {
    expectClose(groupAdvantages([-1, -1, 1], maxrl), groupAdvantages([0, 0, 2], maxrl));
    expectClose(groupAdvantages([-1, -1, 1], maxrl), [-1, -1, 2]);
    expectClose(groupAdvantages([-1, 1, 0], maxrl), [-1, 1, 0]);
  });

  test.each([skyrl, rloo, maxrl])('rise with the reward, whatever the rewards (%j)', (settings) => {
    const reward = fc.oneof(
      fc.constantFrom(-1, -1e-6, 0, 1),
      fc.double({ min: -5, max: 5, noNaN: true }),
      fc.double({ min: -1e100, max: 1e100, noNaN: true }),
    );
    fc.assert(
      fc.property(fc.array(reward, { minLength: 2, maxLength: 8 }), (rewards) => {
        const advantages = groupAdvantages(rewards, settings);
        if (advantages[0] === null) return;
        for (const [i, a] of rewards.entries())
          for (const [j, b] of rewards.entries())
            if (a > b) expect(advantages[i]).toBeGreaterThanOrEqual(advantages[j] as number);
        expect(advantages.every((value) => Number.isFinite(value))).toBe(true);
        const best = rewards.indexOf(Math.max(...rewards));
        expect(advantages[best]).toBeGreaterThanOrEqual(0);
      }),
    );
  });

  test.each([skyrl, rloo, maxrl])('are null for a group without a signal (%j)', (settings) => {
    expect(groupAdvantages([1, 1, 1], settings)).toEqual([null, null, null]);
    expect(groupAdvantages([0.1, 0.1, 0.1], settings)).toEqual([null, null, null]);
    expect(groupAdvantages([1], settings)).toEqual([null]);
  });

  test.each([skyrl, rloo, maxrl])(
    'leave unknown outcomes out, and never count them as 0 (%j)',
    (settings) => {
      const [a, b, c] = groupAdvantages([1, null, 0], settings);
      expect([a, c]).toEqual(groupAdvantages([1, 0], settings));
      expect(b).toBeNull();
      expect(groupAdvantages([1, null, null], settings)).toEqual([null, null, null]);
    },
  );
});

describe('advantages of a step', () => {
  const of = (...samples: [number | null, number][]): GradedSample[] =>
    samples.map(([reward, tokens]) => ({ reward, tokens }));
  const reinforce = { estimator: 'reinforce++' } as const;

  test('are computed per group with a group-relative estimator', () => {
    const groups = [of([1, 5], [0, 9]), of([0, 1], [0, 1]), of([null, 0], [1, 2], [0, 2])];
    expect(stepAdvantages(groups, rloo)).toEqual([
      [1, -1],
      [null, null],
      [null, 1, -1],
    ]);
  });

  test('are whitened over all sampled tokens with reinforce++', () => {
    // Returns of six tokens: 1 1 1 | 0 | 0 0. Mean 0.5, variance with n − 1: 6 · 0.25 / 5.
    const scale = Math.sqrt(0.3 + 1e-8);
    expectClose(stepAdvantages([of([1, 3], [0, 1]), of([0, 2])], reinforce).flat(), [
      0.5 / scale,
      -0.5 / scale,
      -0.5 / scale,
    ]);
    // A long sample moves the mean towards its own reward.
    const [[long, short]] = stepAdvantages([of([1, 9], [0, 1])], reinforce) as [[number, number]];
    expect(Math.abs(short / long)).toBeCloseTo(9, 9);
    expect(9 * long + short).toBeCloseTo(0, 9);
  });

  test('with reinforce++, a group of equal rewards gets its signal from other groups; a step of equal rewards has none', () => {
    const [first, second] = stepAdvantages([of([1, 2], [1, 2]), of([0, 2], [null, 3])], reinforce);
    expect(first?.every((value) => value !== null && value > 0)).toBe(true);
    expect(second?.[0]).toBeLessThan(0);
    expect(second?.[1]).toBeNull();
    expect(stepAdvantages([of([1, 2], [1, 5]), of([1, 1])], reinforce).flat()).toEqual([null, null, null]);
    // A sample without tokens does not count.
    expect(stepAdvantages([of([1, 2], [0, 0])], reinforce).flat()).toEqual([null, null]);
  });
});
