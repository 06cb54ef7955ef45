// Times that replace those of `src/workflows/policies.ts`. A busy machine may stall for seconds, so a node that reports must not count as
// lost before that.
import type { placing, poolTimes, sweeping } from '../../../src/workflows/policies.js';

/** Some of the times of `T`. */
type Hurried<T> = Partial<Record<keyof T, number>>;

export const reportEveryMs = 500;
export const hurriedPoolTimes = {
  nodeLostAfterMs: 5_000,
  awayAfterMs: 1_000,
  askEveryMs: 2_000,
} satisfies Hurried<typeof poolTimes>;
export const hurriedPlacing = { firstAskAgainMs: 3_000, idleRunHoldsMs: 3_000 } satisfies Hurried<
  typeof placing
>;
export const hurriedSweeping = { windowPairs: 2, turnMs: 1 } satisfies Hurried<typeof sweeping>;
