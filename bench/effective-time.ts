// ETTR of a run that faults met: the time that its steps take by themselves, over the time that they took.
import { median } from './figure.js';

export interface CommittedAt {
  step: number;
  /** Of one clock, ms. */
  at: number;
}

export interface EffectiveTime {
  /** Steps that are counted. */
  steps: number;
  /** Of them, those in which a fault struck. */
  disturbed: number;
  ettr: number;
  /** Median, and largest distance of a tenth and nine tenths from it, of the steps that no fault met. */
  step_seconds: number;
  step_spread: number;
}

/**
 * Steps after the first of `commits`, whose work is alike: the ideal time of each is the median of those that no fault met, taken in
 * the same run. `faults`: when each struck.
 */
export function effectiveTime(commits: readonly CommittedAt[], faults: readonly number[]): EffectiveTime {
  const spans = commits.slice(1).map(({ at }, index) => {
    const from = commits[index]?.at ?? at;
    return { seconds: (at - from) / 1000, struck: faults.some((fault) => fault > from && fault <= at) };
  });
  const calm = spans.flatMap(({ seconds, struck }) => (struck ? [] : [seconds])).sort((a, b) => a - b);
  if (calm.length < 2 || calm.length === spans.length)
    throw new Error(
      `${calm.length} of ${spans.length} steps were calm: the run was too short, or no fault met it`,
    );
  const ideal = median(calm);
  const tenth = (share: number): number => calm[Math.floor(share * (calm.length - 1))] ?? ideal;
  const wall = spans.reduce((sum, { seconds }) => sum + seconds, 0);
  return {
    steps: spans.length,
    disturbed: spans.length - calm.length,
    ettr: (ideal * spans.length) / wall,
    step_seconds: ideal,
    step_spread: Math.max(tenth(0.9) - ideal, ideal - tenth(0.1)) / ideal,
  };
}
