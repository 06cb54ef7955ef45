// Whether 95 % intervals hold the true difference in 95 % of comparisons: in simulated ones, where the truth is known.
import { expect, test } from 'vitest';
import { uniform } from '../../src/rl/random.js';
import { normalShare, pairedInterval, tQuantile, unseenChange } from '../../src/sweeps/bootstrap.js';

interface Regime {
  tasks: number;
  samples: number;
  /** Mean pass rate of the baseline. */
  rate: number;
  /** Tasks differ in log-odds with this standard deviation; 0: all alike. */
  spread: number;
  /** How much better the other state is, in log-odds; and how differently it is for each task. */
  shift: number;
  unevenness: number;
}

/** Standard normal, from two uniforms. */
function normal(...key: (number | string)[]): number {
  const [a, b] = [uniform(...key, 'a'), uniform(...key, 'b')];
  return Math.sqrt(-2 * Math.log(1 - a)) * Math.cos(2 * Math.PI * b);
}

const logistic = (odds: number): number => 1 / (1 + Math.exp(-odds));

/** Pass rates of the `index`-th task of an endless supply, for both states. */
function ratesOf({ rate, spread, shift, unevenness }: Regime, key: string, index: number): [number, number] {
  const odds = Math.log(rate / (1 - rate)) + (spread === 0 ? 0 : spread * normal(key, 'task', index));
  const change = shift + (unevenness === 0 ? 0 : unevenness * normal(key, 'change', index));
  return [logistic(odds), logistic(odds + change)];
}

const supply = 20_000;
/** More of them tell more of each regime. */
const comparisons = Number(process.env['LONGHAUL_COMPARISONS'] ?? 1_000);

function trueDifference(regime: Regime): number {
  let sum = 0;
  for (let index = 0; index < supply; index++) {
    const [before, after] = ratesOf(regime, 'supply', index);
    sum += after - before;
  }
  return sum / supply;
}

function covers(regime: Regime, truth: number, comparison: string): boolean {
  const { tasks, samples } = regime;
  const differences = Array.from({ length: tasks }, (_, index) => {
    const rates = ratesOf(regime, comparison, index);
    const [before = 0, after = 0] = rates.map((rate, side) => {
      let passed = 0;
      for (let sample = 0; sample < samples; sample++)
        passed += Number(uniform(comparison, side, index, sample) < rate);
      return passed / samples;
    });
    return after - before;
  });
  const { low, high } = pairedInterval(differences, unseenChange(samples), [comparison]);
  return low <= truth && truth <= high;
}

const sizes = [20, 35, 50, 100, 200];
const counts = [1, 2, 4, 8];
const kinds: Omit<Regime, 'tasks' | 'samples'>[] = [
  { rate: 0.05, spread: 0, shift: 0, unevenness: 0 },
  { rate: 0.05, spread: 1.5, shift: 0.7, unevenness: 0.5 },
  { rate: 0.1, spread: 2, shift: 0.5, unevenness: 1 },
  { rate: 0.3, spread: 1.5, shift: 0.8, unevenness: 0.5 },
  { rate: 0.5, spread: 0, shift: 0.5, unevenness: 0 },
  { rate: 0.5, spread: 3, shift: 0.5, unevenness: 1 },
  { rate: 0.7, spread: 2, shift: -0.5, unevenness: 1 },
  { rate: 0.9, spread: 2, shift: 0.5, unevenness: 0.5 },
  { rate: 0.95, spread: 1.5, shift: -0.5, unevenness: 0.5 },
  { rate: 0.95, spread: 0, shift: 0, unevenness: 0 },
];

test(
  '95 % intervals hold the true difference in 93 to 97 % of 1,000 simulated comparisons',
  { timeout: 600_000 },
  () => {
    const truths = kinds.map((kind) => trueDifference({ ...kind, tasks: 0, samples: 0 }));
    const tally = new Map<string, { covered: number; of: number }>();
    const count = (group: string, covered: boolean): void => {
      const so = tally.get(group) ?? { covered: 0, of: 0 };
      tally.set(group, { covered: so.covered + Number(covered), of: so.of + 1 });
    };
    // Every size with every number of samples and every kind, five times.
    for (let comparison = 0; comparison < comparisons; comparison++) {
      const kind = comparison % kinds.length;
      const samples = counts[Math.floor(comparison / kinds.length) % counts.length] as number;
      const tasks = sizes[Math.floor(comparison / kinds.length / counts.length) % sizes.length] as number;
      const regime = { ...(kinds[kind] as (typeof kinds)[number]), tasks, samples };
      const covered = covers(regime, truths[kind] as number, `comparison ${comparison}`);
      count('all', covered);
      count(`${tasks} tasks`, covered);
      count(`${samples} samples`, covered);
      count(`pass rate ${regime.rate}`, covered);
    }
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
    // Of a hundred comparisons and more; 40,000 give 94.7 to 96.1 % for each of them.
    for (const group of tally.keys()) {
      expect(share(group), group).toBeGreaterThan(0.9);
      expect(share(group), group).toBeLessThan(0.995);
    }
  },
);

test('an interval is as wide as Student’s t makes it, and another draw for another comparison', () => {
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
  // The percentiles of the normal law would be 6 % closer together.
  expect(Math.abs(mean - 1)).toBeLessThan(0.03);
  expect(new Set(shares).size).toBeGreaterThan(30);
  expect(Math.max(...shares) / Math.min(...shares)).toBeLessThan(1.2);
});

test('quantiles are those of the tables', () => {
  expect([2, 5, 10, 30].map(tQuantile)).toEqual(
    [4.3027, 2.5706, 2.2281, 2.0423].map((value): unknown => expect.closeTo(value, 1)),
  );
  expect([-1.96, 0, 1.2816].map(normalShare)).toEqual(
    [0.025, 0.5, 0.9].map((value): unknown => expect.closeTo(value, 4)),
  );
});
