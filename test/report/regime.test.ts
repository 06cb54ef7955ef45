import { describe, expect, test } from 'vitest';
import { countedRegimes, regimeOf } from '../../src/report/regime.js';

describe('the regime of an environment', () => {
  test.each([
    ['saturating', 'nearly all pass before and after', [0.96, 128], [0.97, 128]],
    ['saturating', 'it rises to 94 %, and little is left to learn', [0.4, 51], [0.94, 51]],
    ['improving', '31 % to 38 % of 2,000 episodes is a rise', [0.3125, 2000], [0.375, 2000]],
    ['improving', 'it ends below 10 %, but began at nothing', [0.01, 500], [0.08, 500]],
    ['improving', 'it ends at 100 % of too few episodes to be sure of that', [0, 10], [1, 10]],
    ['flat', 'nearly equal shares of 500 episodes', [0.5, 500], [0.52, 500]],
    ['failing', 'nearly none passes before and after', [0.02, 128], [0.05, 128]],
    ['failing', 'none of 50 passes', [0, 50], [0, 50]],
    ['falling', '38 % to 31 % of 2,000 episodes is a fall', [0.375, 2000], [0.3125, 2000]],
    ['falling', 'it ends above 90 %, but began higher', [0.99, 1000], [0.93, 1000]],
    ['falling', 'it has lost everything', [0.6, 100], [0, 100]],
    ['too few episodes', '31 % to 38 % of 16 may be chance', [0.3125, 16], [0.375, 16]],
    ['too few episodes', 'a single pass', [0, 1], [1, 1]],
    ['too few episodes', 'all of 8 pass', [1, 8], [1, 8]],
    ['too few episodes', 'none of 5 passes', [0, 5], [0, 5]],
    ['too few episodes', 'equal shares of 100 may hide a change', [0.5, 100], [0.5, 100]],
    ['not compared', 'no outcome was graded before', [null, 0], [0.5, 128]],
    ['not compared', 'no outcome was graded after', [0.5, 128], [null, 0]],
  ] as const)('is %s: %s', (regime, _, [then, thenGraded], [now, nowGraded]) => {
    const rate = (pass_at_1: number | null, graded: number) => ({ pass_at_1, graded });
    expect(regimeOf(rate(then, thenGraded), rate(now, nowGraded))).toBe(regime);
  });

  test('is no change that unequal counts alone make', () => {
    const regime = (then: number, thenOf: number, now: number, nowOf: number) =>
      regimeOf({ pass_at_1: then / thenOf, graded: thenOf }, { pass_at_1: now / nowOf, graded: nowOf });
    expect(regime(0, 10, 0, 200)).toBe('failing');
    expect(regime(0, 240, 0, 20)).not.toBe('improving');
    expect(regime(240, 240, 22, 22)).not.toBe('falling');
    expect(regime(1, 10, 5, 200)).not.toBe('falling');
  });

  test('is not compared if more than a tenth of the outcomes is unknown', () => {
    const after = { pass_at_1: 0.9, graded: 100 };
    expect(regimeOf({ pass_at_1: 0.5, graded: 100 }, { ...after, unknown: 20 })).toBe('not compared');
    expect(regimeOf({ pass_at_1: 0.5, graded: 100 }, { ...after, unknown: 5 })).toBe('saturating');
  });

  test('counts tasks, not their samples', () => {
    const several = { graded: 96, samples: 16 };
    expect(regimeOf({ pass_at_1: 0.5, ...several }, { pass_at_1: 0.83, ...several })).toBe(
      'too few episodes',
    );
  });

  test('is not compared if the baseline lacks the environment', () => {
    expect(regimeOf(undefined, { pass_at_1: 0.5, graded: 500 })).toBe('not compared');
  });
});

test('regimes are counted, the most urgent first', () => {
  expect(countedRegimes(['improving', 'failing', 'improving', 'flat'])).toEqual([
    { regime: 'failing', count: 1 },
    { regime: 'flat', count: 1 },
    { regime: 'improving', count: 2 },
  ]);
});
