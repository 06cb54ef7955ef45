// ETTR of a run that faults met: the share of its time that they have not cost.
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
  /** Of the steps that a fault struck, and of those after them: what it has cost, s. */
  costs: { step: number; seconds: number }[];
  /** Median, and largest distance of a tenth and nine tenths from it, of the calm steps. */
  step_seconds: number;
  step_spread: number;
}

/** Calm steps around a disturbed one that tell what it would have taken: a machine's speed drifts by more than faults cost. */
const neighbours = 6;

/**
 * Steps after the first of `commits`, whose work is alike. A fault costs what its step and the one after it, which may suffer from it
 * still, took longer than the median of the nearest calm ones. `faults`: when each struck.
 */
export function effectiveTime(commits: readonly CommittedAt[], faults: readonly number[]): EffectiveTime {
  const spans = commits.slice(1).map(({ step, at }, index) => {
    const from = commits[index]?.at ?? at;
    return {
      index,
      step,
      seconds: (at - from) / 1000,
      struck: faults.some((fault) => fault > from && fault <= at),
    };
  });
  const isDisturbed = (index: number): boolean =>
    spans[index]?.struck === true || spans[index - 1]?.struck === true;
  const calm = spans.filter(({ index }) => !isDisturbed(index));
  if (calm.length < 2 || calm.length === spans.length)
    throw new Error(
      `${calm.length} of ${spans.length} steps were calm: the run was too short, or no fault met it`,
    );
  const around = (index: number): number[] =>
    [...calm]
      .sort((a, b) => Math.abs(a.index - index) - Math.abs(b.index - index))
      .slice(0, neighbours)
      .map(({ seconds }) => seconds);
  const costs = spans
    .filter(({ index }) => isDisturbed(index))
    .map(({ index, step, seconds }) => ({ step, seconds: seconds - median(around(index)) }));
  const cost = costs.reduce((sum, { seconds }) => sum + seconds, 0);
  const sorted = calm.map(({ seconds }) => seconds).sort((a, b) => a - b);
  const usual = median(sorted);
  const tenth = (share: number): number => sorted[Math.floor(share * (sorted.length - 1))] ?? usual;
  const wall = spans.reduce((sum, { seconds }) => sum + seconds, 0);
  return {
    steps: spans.length,
    disturbed: spans.filter(({ struck }) => struck).length,
    ettr: 1 - cost / wall,
    costs,
    step_seconds: usual,
    step_spread: Math.max(tenth(0.9) - usual, usual - tenth(0.1)) / usual,
  };
}
