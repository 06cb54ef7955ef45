// Intervals for the mean difference of two states on the same tasks, from resampled tasks. Tasks are resampled, not samples, because a
// suite has few tasks, and the samples of one task are not independent.
//
// The plain percentile interval is too short for few tasks, and has no width if no task differs. Two changes fix this. They were chosen by
// simulation (20 to 200 tasks, pass rates of 0.05 to 0.95, 1 to 8 samples); `test/sweeps/coverage.test.ts` prints the coverage.
// - Two made-up tasks, one better and one worse by `unseenChange`, stand for changes that so few tasks have not shown.
// - The percentiles are those of Student's t instead of the normal law's (Hesterberg 2015), because the spread is estimated too.
//
// BCa and studentised intervals have less coverage when few tasks differ.
import { hash32 } from '../rl/random.js';

const resamples = 2_000;

export interface Interval {
  low: number;
  high: number;
}

/** Difference of the made-up tasks if each task's rate comes from `samples` samples. */
export function unseenChange(samples: number): number {
  return 0.5 / Math.sqrt(Math.max(1, samples));
}

/**
 * 95 % interval for the mean of `differences`: one value per task, each from −1 to 1. The random draws depend only on the key, so the same
 * comparison always has the same interval.
 */
export function pairedInterval(
  differences: readonly number[],
  unseen: number,
  key: readonly (number | string)[],
): Interval {
  const cases = Float64Array.from([...differences, unseen, -unseen]);
  const n = cases.length;
  const means = new Float64Array(resamples);
  const stream = hash32(...key);
  let counter = 0;
  for (let resample = 0; resample < resamples; resample++) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += cases[Math.floor(draw(stream, counter++) * n)] as number;
    means[resample] = sum / n;
  }
  means.sort();
  const tail = normalShare(-Math.sqrt(n / (n - 1)) * tQuantile(n - 1));
  return {
    low: Math.max(-1, quantile(means, tail)),
    high: Math.min(1, quantile(means, 1 - tail)),
  };
}

/** Uniform in [0, 1) at position `counter` of a stream. `hash32` would also do, but takes ten times as long. */
function draw(stream: number, counter: number): number {
  let hash = (stream + Math.imul(counter, 0x9e3779b9)) | 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x21f0aaad);
  hash = Math.imul(hash ^ (hash >>> 15), 0x735a2d97);
  return ((hash ^ (hash >>> 15)) >>> 0) / 0x1_0000_0000;
}

/** Interpolated between the two nearest of the sorted values. */
function quantile(sorted: Float64Array, share: number): number {
  const place = Math.min(sorted.length - 1, Math.max(0, share * (sorted.length + 1) - 1));
  const below = Math.floor(place);
  const low = sorted[below] as number;
  const high = sorted[Math.min(sorted.length - 1, below + 1)] as number;
  return low + (place - below) * (high - low);
}

/** 97.5 % quantile of Student's t, expanded around the normal one (Abramowitz and Stegun 26.7.5); within 1 % from 2 degrees on. */
export function tQuantile(degrees: number): number {
  const z = 1.959963984540054;
  const terms = [
    (z ** 3 + z) / 4,
    (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96,
    (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / 384,
    (79 * z ** 9 + 776 * z ** 7 + 1482 * z ** 5 - 1920 * z ** 3 - 945 * z) / 92_160,
  ];
  return terms.reduce((sum, term, index) => sum + term / degrees ** (index + 1), z);
}

/** Share of the normal law below z (Abramowitz and Stegun 7.1.26); within 2e-7. */
export function normalShare(z: number): number {
  const x = Math.abs(z) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * x);
  const polynomial =
    ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  const upper = (polynomial * Math.exp(-x * x)) / 2;
  return z >= 0 ? 1 - upper : upper;
}
