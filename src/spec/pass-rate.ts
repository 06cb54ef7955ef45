// The share of passes among graded outcomes, pass@k, and their texts. Without a graded outcome the share is null: 0 would say that the model
// failed. Workflows import this file, so it must stay deterministic and import nothing else.

/** From 0 to 1; null if no outcome was graded. */
export type PassRate = number | null;

export const nothingGraded = 'no outcome was graded';

export function passRateOf(passed: number, graded: number): PassRate {
  return graded === 0 ? null : passed / graded;
}

/** Passed samples among the graded samples of one task. */
export interface Counted {
  passed: number;
  graded: number;
}

/**
 * The chance that at least one of k samples of a task passes: the unbiased estimate 1 − C(n−c, k) / C(n, k) from n samples, c of which
 * passed (Chen et al. 2021). The plain 1 − (1 − c/n)^k is too low. Throws a RangeError unless 1 ≤ k ≤ n and 0 ≤ c ≤ n.
 */
export function passAtK(n: number, c: number, k: number): number {
  if (!(k >= 1 && k <= n && c >= 0 && c <= n)) {
    throw new RangeError(`pass@${k} of ${c} passes among ${n} samples: k must be 1 to n, and passes 0 to n`);
  }
  // Computed as a product, because factorials would overflow.
  let none = 1;
  for (let i = n - c + 1; i <= n; i++) none *= Math.max(0, 1 - k / i);
  return 1 - none;
}

/** The values of k that are reported for n samples per task: 1, 2, 3, 4, 8, … and n itself. SkyRL Fleet Training reports pass@3. */
export function ksOf(samples: number): number[] {
  const ks = new Set<number>();
  for (let k = 1; k < samples; k *= 2) ks.add(k);
  if (samples > 3) ks.add(3);
  return [...ks.add(samples)].sort((a, b) => a - b);
}

/** pass@k for each reported k above 1: the mean over the tasks with at least k graded samples. `value` is null if there are no such tasks. */
export function passAtKs(
  counted: readonly Counted[],
  samples: number,
): { k: number; value: PassRate; tasks: number }[] {
  return ksOf(samples)
    .filter((k) => k > 1)
    .map((k) => {
      const enough = counted.filter(({ graded }) => graded >= k);
      const sum = enough.reduce((total, { passed, graded }) => total + passAtK(graded, passed, k), 0);
      return { k, value: passRateOf(sum, enough.length), tasks: enough.length };
    });
}

/** pass@k is left out if a smaller share of the graded tasks has enough samples: it would describe other tasks than pass@1 does. */
const tasksOfFigure = 0.9;

/** pass@k by k, without those for which more than a tenth of the graded tasks have too few graded samples. */
export function knownPassAtK(counted: readonly Counted[], samples: number): Record<string, number> {
  const graded = counted.filter((one) => one.graded > 0).length;
  return Object.fromEntries(
    passAtKs(counted, samples).flatMap(({ k, value, tasks }) =>
      value === null || tasks < tasksOfFigure * graded ? [] : [[k, value]],
    ),
  );
}

/** `61.0 %`, or `–`. */
export function passRateText(rate: PassRate): string {
  return rate === null ? '–' : `${(100 * rate).toFixed(1)} %`;
}

/** pass@k by k, as `knownPassAtK` gives it; absent if the suite has one sample a task. */
export interface SeveralSamples {
  pass_at_k?: Record<string, number>;
}

export interface PassRates extends SeveralSamples {
  pass_at_1: PassRate;
  /** Share of the tasks that have a reward above 0. */
  pass_at_n?: PassRate;
}

/** The known rates by SkyRL's names: `pass_at_1`, `pass_at_3`, …, `pass_at_n`. */
export function passRatesOf({
  pass_at_1,
  pass_at_k = {},
  pass_at_n = null,
}: PassRates): Record<string, number> {
  return {
    ...(pass_at_1 === null ? {} : { pass_at_1 }),
    ...Object.fromEntries(Object.entries(pass_at_k).map(([k, rate]) => [`pass_at_${k}`, rate])),
    ...(pass_at_n === null ? {} : { pass_at_n }),
  };
}

/** The largest known k and its rate; null if there is none. */
export function largestPassAtK({ pass_at_k = {} }: SeveralSamples): { k: number; rate: number } | null {
  const k = Math.max(0, ...Object.keys(pass_at_k).map(Number));
  const rate = pass_at_k[k];
  return rate === undefined ? null : { k, rate };
}

/** `61.0 % of 128 episodes`, or `– (no outcome was graded)`; of several samples a task `61.0 % of 384 episodes · pass@3 70.5 %`. */
export function countedPassRate({
  pass_at_1,
  graded,
  ...several
}: { pass_at_1: PassRate; graded: number } & SeveralSamples): string {
  if (pass_at_1 === null) return `– (${nothingGraded})`;
  const count = `${graded} ${graded === 1 ? 'episode' : 'episodes'}`;
  const largest = largestPassAtK(several);
  const more = largest === null ? '' : ` · pass@${largest.k} ${passRateText(largest.rate)}`;
  return `${passRateText(pass_at_1)} of ${count}${more}`;
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
