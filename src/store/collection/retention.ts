// Which checkpoints stay, and why: a function of steps alone, so that a dry run and the run after it agree.
import type { RetentionSpec } from '../../spec/run-spec.js';
import type { RankedSteps } from './evaluated-steps.js';

export interface Wanted {
  retention: RetentionSpec;
  /** Steps with a state that another run, a sweep or an audit needs, and by what. */
  needed: readonly { step: number; by: string }[];
  /** Evaluated steps, best first, and those with an evaluation without a rank. */
  evaluated: RankedSteps;
}

const unrankedReason = 'its evaluation has no result that can be read';

/** Why each checkpoint stays, by step; the others of `checkpoints` (ascending) may go. */
export function keptCheckpoints(
  checkpoints: readonly number[],
  { retention, needed, evaluated }: Wanted,
): Map<number, string[]> {
  const kept = new Map<number, string[]>();
  const keep = (step: number | undefined, why: string): void => {
    if (step !== undefined) kept.set(step, [...(kept.get(step) ?? []), why]);
  };
  /** The checkpoint from which the state after `step` is computed. */
  const covering = (step: number): number | undefined => checkpoints.findLast((one) => one <= step);

  keep(checkpoints.at(-1), 'newest');
  for (const { step, by } of needed) keep(covering(step), `needed by ${by}`);
  const { keep_last, keep_every, keep_best } = retention;
  for (const step of checkpoints.slice(-keep_last, -1)) keep(step, 'keep_last');
  for (const step of firstOfEach(checkpoints, keep_every)) keep(step, 'keep_every');
  for (const step of evaluated.best.slice(0, keep_best)) keep(covering(step), 'keep_best');
  // In addition to the best: no step loses its place to one without a known rank.
  if (keep_best > 0) for (const step of evaluated.unranked) keep(covering(step), unrankedReason);
  return kept;
}

/** Checkpoints lie where they were due and the upload succeeded, so not at multiples only. */
function firstOfEach(checkpoints: readonly number[], stretch: number): number[] {
  if (stretch === 0) return [];
  const first = new Map<number, number>();
  for (const step of checkpoints) {
    const index = Math.floor(step / stretch);
    if (!first.has(index)) first.set(index, step);
  }
  // Before the first multiple there is no stretch that has begun.
  return [...first].filter(([index]) => index > 0).map(([, step]) => step);
}
