// Learning rates by update. Updates count from 0 within their phase; the first one never has the rate 0.

/** Linear rise over `warmup` updates, then constant. */
export function constantWithWarmup(lr: number, warmup: number, update: number): number {
  return lr * Math.min(1, (update + 1) / (warmup + 1));
}

/** Warm-up, then constant, then over the last `decayShare` of `updates` linearly down to a tenth at the last one. */
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
