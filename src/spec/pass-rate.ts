// The share of passes among graded outcomes, and its text. Without a graded outcome the share is null: 0 would say that the model failed.
// Workflows import this file, so it must stay deterministic and import nothing else.

/** From 0 to 1; null if no outcome was graded. */
export type PassRate = number | null;

export const nothingGraded = 'no outcome was graded';

export function passRateOf(passed: number, graded: number): PassRate {
  return graded === 0 ? null : passed / graded;
}

/** `61.0 %`, or `–`. */
export function passRateText(rate: PassRate): string {
  return rate === null ? '–' : `${(100 * rate).toFixed(1)} %`;
}

/** `61.0 % of 128 episodes`, or `– (no outcome was graded)`. */
export function countedPassRate({ pass_at_1, graded }: { pass_at_1: PassRate; graded: number }): string {
  if (pass_at_1 === null) return `– (${nothingGraded})`;
  return `${passRateText(pass_at_1)} of ${graded} ${graded === 1 ? 'episode' : 'episodes'}`;
}

/** The change of the pass rate; null if one of the two rates is null. */
export function passRateChange(before: PassRate, after: PassRate): number | null {
  return before === null || after === null ? null : after - before;
}

export interface TargetEnding {
  step: number;
  /** The target pass rate that the run's interval evaluation reached. */
  target: number;
  /** The final evaluation; null if it has no result yet. `graded`: absent if not known. */
  final: { pass_at_1: PassRate; graded?: number } | null;
}

/**
 * `ended at step 464: the interval evaluation reached 90 %; final evaluation 88.7 % (256)`. The interval suite is small, and chance may
 * lift one of its evaluations over the target, which ends the run. The final evaluation is the better estimate.
 */
export function endingText({ step, target, final }: TargetEnding): string {
  const reached = `ended at step ${step}: the interval evaluation reached ${Number((100 * target).toFixed(2))} %`;
  if (final === null) return reached;
  const { pass_at_1, graded } = final;
  const count = pass_at_1 === null ? ` (${nothingGraded})` : graded === undefined ? '' : ` (${graded})`;
  return `${reached}; final evaluation ${passRateText(pass_at_1)}${count}`;
}
