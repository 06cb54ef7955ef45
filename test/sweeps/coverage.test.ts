// Simulated comparisons, in which the truth is known: do 95 % intervals contain the true difference in 95 % of them?
import { expect, test } from 'vitest';
import { normalShare, pairedInterval, tQuantile } from '../../src/sweeps/bootstrap.js';
import { intervalCoverage } from './interval-coverage.js';

/** A higher number gives a more exact coverage for each group. */
const comparisons = Number(process.env['LONGHAUL_COMPARISONS'] ?? 1_000);

test('95 % intervals contain the true difference in 93 to 97 % of 1,000 simulated comparisons', () => {
  const tally = intervalCoverage(comparisons);
  const share = (group: string): number => {
    const { covered, of } = tally.get(group) ?? { covered: 0, of: 1 };
    return covered / of;
  };
  console.log(
    [
      'coverage of 95 % intervals',
      ...[...tally].map(([group, { of }]) => `  ${group}: ${(share(group) * 100).toFixed(1)} % of ${of}`),
    ].join('\n'),
  );
  expect(share('all')).toBeGreaterThanOrEqual(0.93);
  expect(share('all')).toBeLessThanOrEqual(0.97);
  // Each group has at least a hundred comparisons; 40,000 comparisons give 94.7 to 96.1 %.
  for (const group of tally.keys()) {
    expect(share(group), group).toBeGreaterThan(0.9);
    expect(share(group), group).toBeLessThan(0.995);
  }
});

test('an interval has the width of Student’s t, and each comparison has its own draws', () => {
  const unseen = 0.2;
  const differences = Array.from({ length: 20 }, (_, index) => (index - 9.5) / 31);
  const n = differences.length + 2;
  const squares = [...differences, unseen, -unseen].reduce((sum, one) => sum + one ** 2, 0);
  const expected = tQuantile(n - 1) * Math.sqrt(squares / n / (n - 1));
  const shares = Array.from({ length: 40 }, (_, index) => {
    const { low, high } = pairedInterval(differences, unseen, ['width', index]);
    return (high - low) / 2 / expected;
  });
  const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
  // With the percentiles of the normal law, intervals would be 6 % narrower.
  expect(Math.abs(mean - 1)).toBeLessThan(0.03);
  expect(new Set(shares).size).toBeGreaterThan(30);
  expect(Math.max(...shares) / Math.min(...shares)).toBeLessThan(1.2);
});

test('quantiles are those in published tables', () => {
  expect([2, 5, 10, 30].map(tQuantile)).toEqual(
    [4.3027, 2.5706, 2.2281, 2.0423].map((value): unknown => expect.closeTo(value, 1)),
  );
  expect([-1.96, 0, 1.2816].map(normalShare)).toEqual(
    [0.025, 0.5, 0.9].map((value): unknown => expect.closeTo(value, 4)),
  );
});
