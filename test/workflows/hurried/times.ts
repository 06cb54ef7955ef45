// Times that replace those of `src/workflows/policies.ts`. A busy machine may stall for seconds, so a node that reports must not count as
// lost before that.
export const reportEveryMs = 500;
export const hurriedWatching = { nodeLostAfterMs: 5_000, awayAfterMs: 1_000, askEveryMs: 2_000 };
export const hurriedPlacing = { firstAskAgainMs: 3_000, idleRunHoldsMs: 3_000 };
export const hurriedSweeping = { windowPairs: 2, turnMs: 1 };
