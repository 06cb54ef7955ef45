// When an episode counts as passed. Rewards may be any finite number; pass rates and pass@1 are shares of passes.

/** Full reward is 1: partial reward is no pass. */
export function isPass(reward: number): boolean {
  return reward >= 1;
}
