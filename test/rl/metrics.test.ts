import { describe, expect, test } from 'vitest';
import { constantWithWarmup, warmupThenDecay } from '../../src/rl/learning-rate.js';
import { rewardFigures, rewardMetrics } from '../../src/rl/metrics.js';

describe('reward figures', () => {
  test.each([
    [[1, 0, 0, 0], 0.1875],
    [[1, 1, 0, 0], 0.25],
    [[1, 1, 1, 1], 0],
  ])('of %j have the population variance %d', (values, variance) => {
    expect(rewardFigures([{ env: 'a', values }]).variance_per_prompt).toBeCloseTo(variance, 12);
  });

  test('count prompts, not samples, and leave unknown outcomes out', () => {
    const groups = [
      { env: 'a', values: [1, 0, null] },
      { env: 'a', values: [0, 0, 0] },
      { env: 'b', values: [null, null, null] },
    ];
    expect(rewardFigures(groups)).toEqual({
      pass_at_n: 0.5,
      variance_per_prompt: 0.125,
      signal_ratio: 0.5,
      mean_positive_reward: 1,
    });
    expect(rewardMetrics(groups)).toMatchObject({
      'reward/a/pass_at_n': 0.5,
      'reward/b/pass_at_n': 0,
      'reward/avg_raw_reward': 0.2,
      'reward/unknown': 4,
    });
  });
});

describe('learning rates', () => {
  test('rise linearly, never from 0, then stay', () => {
    expect([0, 1, 2, 3, 50].map((update) => constantWithWarmup(4, 3, update))).toEqual([1, 2, 3, 4, 4]);
    expect(constantWithWarmup(4, 0, 0)).toBe(4);
  });

  test('fall to a tenth at the last update of a phase', () => {
    const rate = (update: number) =>
      warmupThenDecay({ lr: 1, warmup_updates: 0, updates: 100, decay_share: 0.3 }, update);
    expect(rate(69)).toBe(1);
    expect(rate(70)).toBeCloseTo(0.97, 12);
    expect(rate(99)).toBeCloseTo(0.1, 12);
  });
});
