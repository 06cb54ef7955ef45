// Effective training time ratio (ETTR): the share of a run's time that remains when the cost of faults is subtracted.
import { median } from '../figures/figure.js';

export interface CommittedAt {
  step: number;
  /** Time of the commit, ms; all commits and faults use one clock. */
  at: number;
}

export interface EffectiveTime {
  /** Number of counted steps. */
  steps: number;
  /** Counted steps during which a fault happened. */
  disturbed: number;
  ettr: number;
  /** Extra time of each step with a fault and of the step after it, s. */
  costs: { step: number; seconds: number }[];
  /** Median duration of the calm steps. */
  step_seconds: number;
}

/**
 * Number of nearby calm steps whose median duration estimates the normal duration of a disturbed step. Distant steps would not do: a
 * machine's speed drifts by more than faults cost.
 */
const neighbours = 6;

/**
 * Counts all steps after the first of `commits`; all of them do the same work. The cost of a fault is the time by which its step and the
 * next one, which may still be slower, exceed the median of the nearest calm steps. `faults`: times of the faults, ms.
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
  const wall = spans.reduce((sum, { seconds }) => sum + seconds, 0);
  return {
    steps: spans.length,
    disturbed: spans.filter(({ struck }) => struck).length,
    ettr: 1 - cost / wall,
    costs,
    step_seconds: median(calm.map(({ seconds }) => seconds)),
  };
}
