// Learning rates by update. Updates are counted from 0 within their phase. The first rate is above 0.

/** Linear rise over `warmup` updates, then constant. */
export function constantWithWarmup(lr: number, warmup: number, update: number): number {
  return lr * Math.min(1, (update + 1) / (warmup + 1));
}

/** Linear warm-up, then constant. In the last `decayShare` of `updates` the rate falls linearly, to a tenth at the last update. */
export function warmupThenDecay(
  settings: { lr: number; warmup_updates: number; updates: number; decay_share: number },
  update: number,
): number {
  const { lr, warmup_updates, updates, decay_share } = settings;
  const warm = constantWithWarmup(lr, warmup_updates, update);
  const decaying = Math.round(updates * decay_share);
  if (decaying === 0) return warm;
  const into = Math.max(0, Math.min(decaying, update + 1 - (updates - decaying)));
  return warm * (1 - 0.9 * (into / decaying));
}
