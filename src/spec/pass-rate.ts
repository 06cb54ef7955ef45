// The share of passes among graded outcomes, and how people read it. Where no outcome was graded there is no share: 0 would say that the
// model failed. Workflows import this file as it is.

/** 0..1; null where no outcome was graded. */
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

/** The change in share, or null where one of the two has none. */
export function passRateChange(before: PassRate, after: PassRate): number | null {
  return before === null || after === null ? null : after - before;
}
