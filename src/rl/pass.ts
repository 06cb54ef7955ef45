// Defines when an episode counts as passed. Rewards may be any finite number; pass rates and pass@1 are shares of passes.

/** Only a full reward, 1 or more, is a pass. */
export function isPass(reward: number): boolean {
  return reward >= 1;
}
