import { describe, expect, test } from 'vitest';
import { advancePassRates } from '../../src/rl/curriculum.js';
import { episodeReward, isPass, rewardTolerance } from '../../src/rl/episode-reward.js';
import { rewardFigures } from '../../src/rl/metrics.js';
import { uniform } from '../../src/rl/random.js';
import { isSuccess } from '../../src/data/preparation/solved-tasks.js';

interface Fraction {
  over: bigint;
  under: bigint;
}

const reaches = (sum: Fraction, threshold: Fraction): boolean =>
  sum.over * threshold.under >= threshold.over * sum.under;

const plus = (a: Fraction, b: Fraction): Fraction => ({
  over: a.over * b.under + b.over * a.under,
  under: a.under * b.under,
});

const numberOf = ({ over, under }: Fraction): number => Number(over) / Number(under);

interface Case {
  rewards: Fraction[];
  threshold: Fraction;
}

/** Rewards over one denominator, and a threshold that is their sum, just above it, just below it, or anywhere. */
function caseOf(seed: number): Case {
  const integer = (what: string, below: number): number => Math.floor(uniform(seed, 0, what) * below);
  const decimals = [10, 20, 100, 1000, 10_000, 1_000_000];
  const isDecimal = integer('kind', 3) > 0;
  const under = BigInt(isDecimal ? (decimals[integer('places', 6)] as number) : 2 + integer('under', 60));
  const count = 1 + integer('count', 40);
  const most = isDecimal ? Number(under) : 2 * Number(under);
  const rewards = Array.from({ length: count }, (_, index) => {
    const sign = integer(`sign ${index}`, 5) === 0 ? -1 : 1;
    return { over: BigInt(sign * integer(`reward ${index}`, most + 1)), under };
  });
  const sum = rewards.reduce(plus, { over: 0n, under });
  const exact = { over: (sum.over * under) / sum.under, under };
  const moved = [0n, 0n, 1n, -1n, BigInt(integer('anywhere', 50) - 25)][integer('move', 5)] as bigint;
  const threshold = { over: exact.over + moved, under };
  return { rewards, threshold: threshold.over > 0n ? threshold : { over: under, under } };
}

describe('the reward of an episode', () => {
  test.each([
    [Array.from({ length: 10 }, () => 0.1), 1, 1],
    [[0.7, 0.7, 0.7], 2.1, 1],
    [[0.1, 0.2], 0.3, 1],
    [[1 / 3, 1 / 3, 1 / 3], 1, 1],
    [[0.1, 0.2, -0.3], 1, 0],
    [[0.3], 0.1, 3],
    [[1e100, 1, -1e100], 1, 1],
    [[1e-7, 2e-7], 3e-7, 1],
    [[1.5e21, 0.5], 1e21, 1.5],
    [[true, false].map(Number), 1, 1],
    [[0.6, 0.3], 1, 0.9],
    [[0], 2.1, 0],
    [[-1], 3, -1 / 3],
    [[5e-324], 1, 5e-324],
  ])('of %j over %d is %d', (rewards, successAt, expected) => {
    expect(episodeReward(rewards, successAt)).toBe(expected);
  });

  test('does not depend on the order of the steps', () => {
    const rewards = Array.from({ length: 30 }, (_, index) => (index % 7) / 10 - 0.25);
    expect(episodeReward([...rewards].reverse(), 1.7)).toBe(episodeReward(rewards, 1.7));
  });

  test('of a server that computes in float32 is full where its sum is', () => {
    const float32 = (reward: number, times: number) =>
      Array.from({ length: times }, () => Math.fround(reward));
    expect(episodeReward(float32(0.7, 3), 2.1)).toBe(1);
    for (let parts = 1; parts < 200; parts++)
      expect(isPass(episodeReward(float32(1 / parts, parts), 1))).toBe(true);
    expect(isPass(episodeReward(float32(0.7, 3), 2.100001))).toBe(false);
  });

  test.each([[0.999999], [0.99999999], [0.9999999], [1 - 1e-8]])('%d is not full', (reward) => {
    expect(isPass(episodeReward([reward], 1))).toBe(false);
  });

  test('stays what it is where the server gives no number', () => {
    expect(episodeReward([0.5, NaN], 1)).toBeNaN();
    expect(episodeReward([Infinity], 2)).toBe(Infinity);
  });

  test('passes as exact fractions do, in 10,000 seeded sums and thresholds', () => {
    const count = { passed: 0, failed: 0, drifted: 0 };
    for (let seed = 0; seed < 10_000; seed++) {
      const { rewards, threshold } = caseOf(seed);
      const sum = rewards.reduce(plus, { over: 0n, under: 1n });
      const [values, successAt] = [rewards.map(numberOf), numberOf(threshold)];
      const passes = reaches(sum, threshold);
      expect({ seed, passes: isPass(episodeReward(values, successAt)) }).toEqual({ seed, passes });
      count[passes ? 'passed' : 'failed'] += 1;
      const naive = values.reduce((total, value) => total + value, 0) / successAt >= 1;
      count.drifted += Number(naive !== passes);
    }
    // The cases are hard ones: plain sums would judge some of them wrongly.
    expect(count.passed).toBeGreaterThan(2000);
    expect(count.failed).toBeGreaterThan(2000);
    expect(count.drifted).toBeGreaterThan(200);
  });
});

describe('a full reward', () => {
  const [full, short] = [1 - rewardTolerance / 2, 1 - 2 * rewardTolerance];

  test('is one for pass@1, the curriculum and the teacher', () => {
    for (const [reward, passes] of [
      [full, true],
      [short, false],
    ] as const) {
      expect(isPass(reward)).toBe(passes);
      expect(isSuccess({ value: reward })).toBe(passes);
      expect(rewardFigures([{ env: 'x', values: [reward] }]).pass_at_1).toBe(Number(passes));
    }
    expect(advancePassRates({}, [{ pool: 'x', rewards: [Number(isPass(full))] }])).toEqual({ x: 0.6 });
  });
});
