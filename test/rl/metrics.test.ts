import { describe, expect, test } from 'vitest';
import { constantWithWarmup, warmupThenDecay } from '../../src/rl/learning-rate.js';
import { batchRewardMetrics, rewardFigures, rewardMetrics, stepMetrics } from '../../src/rl/metrics.js';

describe('reward figures', () => {
  test.each([
    [[1, 0, 0, 0], 0.1875],
    [[1, 1, 0, 0], 0.25],
    [[1, 1, 1, 1], 0],
  ])('of %j have the population variance %d', (values, variance) => {
    expect(rewardFigures([{ env: 'a', values }]).variance_per_prompt).toBeCloseTo(variance, 12);
  });

  test('count prompts instead of samples, and leave unknown outcomes out', () => {
    const groups = [
      { env: 'a', values: [1, 0, null] },
      { env: 'a', values: [0, 0, 0] },
      { env: 'b', values: [null, null, null] },
    ];
    expect(rewardFigures(groups)).toEqual({
      pass_at_1: 0.2,
      avg_raw_reward: 0.2,
      pass_at_n: 0.5,
      variance_per_prompt: 0.125,
      signal_ratio: 0.5,
      mean_positive_reward: 1,
    });
    const metrics = rewardMetrics(groups);
    expect(metrics).toMatchObject({
      'reward/a/pass_at_1': 0.2,
      'reward/a/pass_at_n': 0.5,
      'reward/avg_pass_at_1': 0.2,
      'reward/avg_raw_reward': 0.2,
      'reward/unknown': 4,
    });
    expect(Object.keys(metrics).filter((name) => name.startsWith('reward/b/'))).toEqual([]);
  });

  test('count only full rewards in pass@1', () => {
    expect(rewardFigures([{ env: 'a', values: [1, 0.5, 2, 0] }])).toMatchObject({
      pass_at_1: 0.5,
      pass_at_n: 1,
    });
  });

  test('are absent if nothing was graded', () => {
    expect(rewardMetrics([{ env: 'a', values: [null, null] }])).toEqual({ 'reward/unknown': 2 });
    // A single graded sample has no variance, so it says nothing about a signal.
    const one = rewardMetrics([{ env: 'a', values: [0, null] }]);
    expect(one).toMatchObject({ 'reward/avg_raw_reward': 0, 'reward/a/mean_positive_reward': 0 });
    expect(one).not.toHaveProperty('reward/signal_ratio');
    expect(one).not.toHaveProperty('reward/a/variance_per_prompt');
  });
});

describe('a step', () => {
  const groups = (...values: (number | null)[][]) => values.map((one) => ({ env: 'a', values: one }));
  const tokens = { 'generate/avg_tokens_non_zero_rewards': 12, 'generate/avg_tokens_zero_rewards': 0 };
  const other = { 'generate/avg_num_tokens': 12, 'environment/total_episodes': 2 };

  test('has its batch’s figures; those over graded outcomes are left out if no outcome is graded', () => {
    const passed = groups([1, 1]);
    const batch = { ...other, ...tokens, ...batchRewardMetrics(passed) };
    expect(stepMetrics(batch, passed)).toEqual({
      ...other,
      'generate/avg_tokens_non_zero_rewards': 12,
      ...rewardMetrics(passed),
    });
    const unknown = groups([null, null]);
    expect(stepMetrics({ ...other, ...tokens, ...batchRewardMetrics(unknown) }, unknown)).toEqual({
      ...other,
      'reward/unknown': 2,
    });
  });

  test('seals the same reward figures as ever, because they are bytes of its batch', () => {
    expect(batchRewardMetrics([...groups([1, 0, null], [0, 0, 0]), { env: 'b', values: [null] }])).toEqual({
      'reward/a/pass_at_n': 0.5,
      'reward/a/variance_per_prompt': 0.125,
      'reward/a/signal_ratio': 0.5,
      'reward/a/mean_positive_reward': 1,
      'reward/b/pass_at_n': 0,
      'reward/b/variance_per_prompt': 0,
      'reward/b/signal_ratio': 0,
      'reward/b/mean_positive_reward': 0,
      'reward/avg_pass_at_n': 0.5,
      'reward/avg_raw_reward': 0.2,
      'reward/mean_positive_reward': 0.2,
      'reward/variance_per_prompt': 0.125,
      'reward/signal_ratio': 0.5,
      'reward/unknown': 2,
    });
  });
});

describe('learning rates', () => {
  test('rise linearly, never from 0, then stay constant', () => {
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

describe('equal rewards', () => {
  test.each([0.1, 0.7, 1 / 3, -0.1, 1e-9])('%d, three times, are no signal', (reward) => {
    const groups = [{ env: 'a', values: [reward, reward, reward] }];
    expect(rewardFigures(groups)).toMatchObject({
      ...{ variance_per_prompt: 0, signal_ratio: 0, avg_raw_reward: reward },
    });
  });

  test('different rewards are a signal, and their sum does not drift', () => {
    expect(rewardFigures([{ env: 'a', values: [...Array<number>(10).fill(0.1), 0] }])).toMatchObject({
      ...{ signal_ratio: 1, avg_raw_reward: 1 / 11 },
    });
  });

  test('keep their figures in batch files, whose bytes are compared', () => {
    const metrics = batchRewardMetrics([{ env: 'a', values: [0.7, 0.7, 0.7] }]);
    expect(metrics['reward/avg_raw_reward']).toBe(0.6999999999999998);
  });
});
