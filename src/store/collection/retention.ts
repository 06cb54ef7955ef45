// Decides which checkpoints stay, and why. The result depends on steps alone, so a dry run and the real run agree.
import type { RetentionSpec, RunSpec } from '../../spec/run-spec.js';
import type { RankedSteps } from './evaluated-steps.js';

export interface Wanted {
  retention: RetentionSpec;
  /** Steps whose state another run, a sweep or an audit needs; `by` names what needs it. */
  needed: readonly { step: number; by: string }[];
  /** Evaluated steps: the ranked ones, best first, and those without a rank. */
  evaluated: RankedSteps;
}

const unrankedReason = 'the result of its evaluation cannot be read';

/** The reasons why a checkpoint stays, by step. All other `checkpoints` (ascending) may be deleted. */
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
  // Keep these in addition to the best steps: a step without a rank must not displace a ranked one.
  if (keep_best > 0) for (const step of evaluated.unranked) keep(covering(step), unrankedReason);
  return kept;
}

/** The first checkpoint at or after each multiple of `stretch`: a checkpoint is not always exactly at a multiple. */
function firstOfEach(checkpoints: readonly number[], stretch: number): number[] {
  if (stretch === 0) return [];
  const first = new Map<number, number>();
  for (const step of checkpoints) {
    const index = Math.floor(step / stretch);
    if (!first.has(index)) first.set(index, step);
  }
  // Checkpoints before the first multiple do not count.
  return [...first].filter(([index]) => index > 0).map(([, step]) => step);
}

/** By default keeps the newest two checkpoints, one at each tenth evaluation, and the best: enough for forks, few enough for any disk. */
export function retentionInForce({
  retention,
  trainer,
}: Pick<RunSpec, 'retention' | 'trainer'>): RetentionSpec {
  return retention ?? { keep_last: 2, keep_every: 10 * trainer.eval_interval, keep_best: 1 };
}
