// Watches whether an environment's rewards and its pass@1 drift apart, because a policy may collect partial rewards instead of solving tasks.

/** Means over the same GRPO steps. */
export interface RewardLevel {
  reward: number;
  /** 0..1 */
  pass_at_1: number;
}

/** Plain data: it is stored with a follower's cursor. */
export interface WatchedLevels {
  /** Levels of the last steps, at most `stepsOfLevel`. */
  last: RewardLevel[];
  /** Mean of the steps with the best pass@1; null before there are enough steps. */
  best: RewardLevel | null;
}

/** Number of GRPO steps in a mean, because a single step may be unlucky. */
export const stepsOfLevel = 5;
/**
 * Reward and pass@1 have drifted apart if, since the steps with the best pass@1, pass@1 has fallen and the mean reward has risen by more than
 * these. For rewards that are only 0 or 1, the mean is pass@1, so they never drift apart.
 */
const loss = 0.1;
const gain = 0.05;
/** The alert ends when the fall is below this share of the limit, or when the reward has not risen. The gap prevents repeated alerts near the limit. */
const ceasesBelow = 0.5;

/** The levels after a GRPO step with these metrics. An environment without a graded episode keeps its levels. */
export function plusLevels(
  before: Readonly<Record<string, WatchedLevels>>,
  metrics: Readonly<Record<string, number>>,
): Record<string, WatchedLevels> {
  const levels = { ...before };
  for (const [name, reward] of Object.entries(metrics)) {
    const environment = /^reward\/(.+)\/avg_raw_reward$/.exec(name)?.[1];
    const pass_at_1 = metrics[`reward/${environment}/pass_at_1`];
    if (environment === undefined || pass_at_1 === undefined) continue;
    const { last: earlier, best } = before[environment] ?? { last: [], best: null };
    const last = [...earlier, { reward, pass_at_1 }].slice(-stepsOfLevel);
    const now = meanOf(last);
    const isBest = last.length === stepsOfLevel && (best === null || now.pass_at_1 >= best.pass_at_1);
    levels[environment] = { last, best: isBest ? now : best };
  }
  return levels;
}

interface Drift {
  environment: string;
  now: RewardLevel;
  best: RewardLevel;
  holds: boolean;
  ceased: boolean;
}

/** One entry for each environment with enough steps. */
export function driftsOf(levels: Readonly<Record<string, WatchedLevels>>): Drift[] {
  return Object.entries(levels).flatMap(([environment, { last, best }]) => {
    if (best === null) return [];
    const now = meanOf(last);
    const [lost, gained] = [best.pass_at_1 - now.pass_at_1, now.reward - best.reward];
    const holds = lost > loss && gained > gain;
    return [{ environment, now, best, holds, ceased: lost < ceasesBelow * loss || gained <= 0 }];
  });
}

function meanOf(levels: readonly RewardLevel[]): RewardLevel {
  const mean = (figure: (level: RewardLevel) => number): number =>
    levels.reduce((sum, level) => sum + figure(level), 0) / levels.length;
  return { reward: mean(({ reward }) => reward), pass_at_1: mean((level) => level.pass_at_1) };
}
