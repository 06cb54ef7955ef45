// The share of passes among graded outcomes, and its text. Without a graded outcome there is no share: 0 would say that the model failed.
// Workflows import this file as it is.

/** 0..1; null without a graded outcome. */
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
  return pass_at_1 === null ? `– (${nothingGraded})` : `${passRateText(pass_at_1)} of ${graded} episodes`;
}

/** The change in share, or null if one of the two has none. */
export function passRateChange(before: PassRate, after: PassRate): number | null {
  return before === null || after === null ? null : after - before;
}

export interface TargetEnding {
  step: number;
  /** The target that the run's interval evaluation reached. */
  target: number;
  /** The evaluation that ends the run; null if it is not there yet. `graded`: absent if not known. */
  final: { pass_at_1: PassRate; graded?: number } | null;
}

/**
 * `ended at step 464: the interval evaluation reached 90 %; final evaluation 88.7 % (256)`. The interval suite is small, and a run ends at
 * the first of its evaluations that chance lifts over the target: the final one is the better figure.
 */
export function endingText({ step, target, final }: TargetEnding): string {
  const reached = `ended at step ${step}: the interval evaluation reached ${Number((100 * target).toFixed(2))} %`;
  if (final === null) return reached;
  const { pass_at_1, graded } = final;
  const count = pass_at_1 === null ? ` (${nothingGraded})` : graded === undefined ? '' : ` (${graded})`;
  return `${reached}; final evaluation ${passRateText(pass_at_1)}${count}`;
}
