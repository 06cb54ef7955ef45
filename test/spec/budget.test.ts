// What counts against a run's limits: hours at their price, and what was sent to a Tinker server at the prices of tokens.
import { describe, expect, it } from 'vitest';
import { limitsOf, servedLines, type Spent, usedOf } from '../../src/spec/budget.js';
import type { BudgetSpec } from '../../src/spec/run-spec.js';

const prices = { train: 2, prefill: 0.5, sample: 1.5 };
const served = { train: 3_000_000, prefill: 4_000_000, sample: 2_000_000, saves: 7 };
const spent: Spent = { tokens: 100, gpu_seconds: 7200, wall_seconds: 9000, served };

function used(budget: BudgetSpec, by = spent): Record<string, number> {
  return Object.fromEntries(limitsOf(budget).map((limit) => [limit.name, usedOf(limit, by)]));
}

describe('max_usd', () => {
  it.each<[string, BudgetSpec, number]>([
    ['hours', { usd_per_gpu_hour: 3 }, 6],
    ['tokens of a Tinker server', { usd_per_million: prices }, 6 + 2 + 3],
    ['both', { usd_per_gpu_hour: 3, usd_per_million: prices }, 6 + 11],
    ['only what has a price', { usd_per_million: { train: 0, prefill: 0, sample: 1 } }, 2],
  ])('counts %s', (_, given, usd) => {
    expect(used({ max_usd: 100, ...given })).toEqual({ max_usd: usd });
  });

  it('counts hours alone where nothing was sent to a server', () => {
    const { served: _, ...without } = spent;
    expect(used({ max_usd: 100, usd_per_gpu_hour: 3, usd_per_million: prices }, without)).toEqual({
      max_usd: 6,
    });
  });

  it('is the only limit that tokens of a server count against', () => {
    expect(used({ max_tokens: 1, max_wall_s: 1, max_gpu_hours: 1, usd_per_million: prices })).toEqual({
      ...{ max_tokens: 100, max_wall_s: 9000, max_gpu_hours: 2 },
    });
  });
});

describe('what was sent', () => {
  it('is shown with its price, and saves have none', () => {
    expect(servedLines(served, prices)).toEqual([
      { kind: 'train', number: 3_000_000, usd: 6 },
      { kind: 'prefill', number: 4_000_000, usd: 2 },
      { kind: 'sample', number: 2_000_000, usd: 3 },
      { kind: 'saves', number: 7 },
    ]);
    expect(servedLines(served, undefined).every(({ usd }) => usd === undefined)).toBe(true);
  });
});
