// Defines when an episode counts as passed. Rewards may be any finite number; pass rates and pass@1 are shares of passes.

/** Rewards that differ by less are equal. Sums and quotients of a server round, so that ten times 0.1 may come as 0.9999999999999999. */
export const rewardTolerance = 1e-9;

/** Only a full reward, 1 or more, is a pass. The one comparison of a reward with a full one. */
export function isPass(reward: number): boolean {
  return reward >= 1 - rewardTolerance;
}
