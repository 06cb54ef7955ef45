import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { countedPassRate, ksOf, passAtK, passAtKs, passRatesOf } from '../../src/spec/pass-rate.js';

it('counts the graded episodes, one of them in the singular', () => {
  expect(countedPassRate({ pass_at_1: 0.61, graded: 128 })).toBe('61.0 % of 128 episodes');
  expect(countedPassRate({ pass_at_1: 0, graded: 1 })).toBe('0.0 % of 1 episode');
  expect(countedPassRate({ pass_at_1: null, graded: 0 })).toBe('– (no outcome was graded)');
});

it('shows pass@k for the largest k, beside pass@1', () => {
  const pass_at_k = { 2: 0.5, 3: 0.7054 };
  expect(countedPassRate({ pass_at_1: 0.31, graded: 384, pass_at_k })).toBe(
    '31.0 % of 384 episodes · pass@3 70.5 %',
  );
  expect(countedPassRate({ pass_at_1: 0.31, graded: 384, pass_at_k: {} })).toBe('31.0 % of 384 episodes');
});

it('has SkyRL’s names, and none for a rate that is not known', () => {
  const pass_at_k = { 2: 0.5, 3: 0.75 };
  expect(passRatesOf({ pass_at_1: 0.25, pass_at_k, pass_at_n: 1 })).toEqual({
    ...{ pass_at_1: 0.25, pass_at_2: 0.5, pass_at_3: 0.75, pass_at_n: 1 },
  });
  expect(passRatesOf({ pass_at_1: null, pass_at_k: {}, pass_at_n: null })).toEqual({});
});

describe('pass@k', () => {
  it('is the share of subsets of k samples that contain a passed sample', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 8 }), fc.nat(8), fc.nat(7), (n, passes, less) => {
        const [c, k] = [Math.min(passes, n), Math.max(1, n - less)];
        const subsets = Array.from({ length: 2 ** n }, (_, bits) => bits).filter((bits) => ones(bits) === k);
        const passing = subsets.filter((bits) => (bits & (2 ** c - 1)) !== 0);
        expect(passAtK(n, c, k)).toBeCloseTo(passing.length / subsets.length, 12);
      }),
    );
    expect(passAtK(200, 1, 100)).toBeCloseTo(0.5, 12);
    expect(() => passAtK(4, 5, 1)).toThrow(RangeError);
    expect(() => passAtK(4, 1, 5)).toThrow('pass@5 of 1 passes among 4 samples');
  });

  it('is reported for k = 1, 2, 3, 4, 8, … and all samples', () => {
    expect([1, 2, 3, 4, 6, 8].map(ksOf)).toEqual([
      [1],
      [1, 2],
      [1, 2, 3],
      [1, 2, 3, 4],
      [1, 2, 3, 4, 6],
      [1, 2, 3, 4, 8],
    ]);
  });

  it('is a mean over the tasks with enough graded samples, and null without such a task', () => {
    const counted = [
      { passed: 1, graded: 3 },
      { passed: 0, graded: 2 },
      { passed: 0, graded: 0 },
    ];
    expect(passAtKs(counted, 3)).toEqual([
      { k: 2, value: expect.closeTo(1 / 3, 12) as number, tasks: 2 },
      { k: 3, value: 1, tasks: 1 },
    ]);
    expect(passAtKs(counted.slice(1), 3).map(({ value }) => value)).toEqual([0, null]);
  });
});

const ones = (bits: number): number => [...bits.toString(2)].filter((bit) => bit === '1').length;
