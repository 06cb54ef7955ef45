// The regime of an environment: what GRPO has done to its pass@1 on held-out tasks, and what is left to learn.
import type { PassRate } from '../spec/pass-rate.js';

export type Regime =
  'saturating' | 'improving' | 'flat' | 'failing' | 'falling' | 'too few episodes' | 'not compared';

/** All regimes, the most urgent first. */
const regimes: readonly Regime[] = [
  'falling',
  'failing',
  'flat',
  'improving',
  'saturating',
  'too few episodes',
  'not compared',
];

/** The pass rate of an evaluation, and the number of episodes behind it. */
export interface CountedRate {
  pass_at_1: PassRate;
  graded: number;
  /** Episodes without a grade; absent: 0. */
  unknown?: number;
  /** Episodes of each task, which are similar; absent: 1. */
  samples?: number;
}

/** A change of so many standard errors happens by chance once in twenty times. */
const significant = 2;
/** There are too few episodes for a verdict if even a change of this size could be chance. */
const noticeable = 0.1;
/** A larger share of unknown outcomes prevents a comparison, because these episodes may differ from the graded ones. */
const mostUnknown = 0.1;
const allButPerfect = 0.9;
const allButNothing = 0.1;

/** The rule in words, for readers of the table. */
export const regimeRule =
  'The first that holds. Not compared: more than a tenth of the outcomes of one side are unknown, or there are none; falling: pass@1 has fallen by more than ' +
  'two standard errors of the difference; saturating: it ends at 90 % or more; improving: it has risen by more than two; failing: it ends ' +
  'at 10 % or less; too few episodes: two standard errors are more than ten points; flat: otherwise';

/** `before`: the evaluation where GRPO began, absent if it did not play the environment; `after`: a later one. */
export function regimeOf(before: CountedRate | undefined, after: CountedRate): Regime {
  if (!before || before.pass_at_1 === null || after.pass_at_1 === null) return 'not compared';
  if ([before, after].some(({ graded, unknown = 0 }) => unknown > mostUnknown * (graded + unknown)))
    return 'not compared';
  const [then, now] = [passesOf(before), passesOf(after)];
  // If the counts differ, the added passes and failures alone would look like a change.
  const seen = after.pass_at_1 - before.pass_at_1;
  const added = shareOf(now) - shareOf(then);
  const change = seen * added > 0 ? Math.sign(seen) * Math.min(Math.abs(seen), Math.abs(added)) : 0;
  const margin = significant * errorOfDifference(then, now);
  if (change < -margin) return 'falling';
  const isSure = significant * errorOf(now) <= noticeable;
  if (isSure && after.pass_at_1 >= allButPerfect) return 'saturating';
  if (change > margin) return 'improving';
  if (isSure && after.pass_at_1 <= allButNothing) return 'failing';
  return margin > noticeable ? 'too few episodes' : 'flat';
}

/** The regimes of these environments with their numbers, the most urgent first. */
export function countedRegimes(of: readonly Regime[]): { regime: Regime; count: number }[] {
  return regimes
    .map((regime) => ({ regime, count: of.filter((one) => one === regime).length }))
    .filter(({ count }) => count > 0);
}

interface Passes {
  passed: number;
  graded: number;
}

/** One pass and one failure more than were seen (Agresti and Caffo 2000). Without them, the error of 0 of 5 episodes would be 0. */
function passesOf({ pass_at_1, graded, samples = 1 }: CountedRate): Passes {
  const tasks = graded / samples;
  return { passed: (pass_at_1 ?? 0) * tasks + 1, graded: tasks + 2 };
}

function shareOf({ passed, graded }: Passes): number {
  return passed / graded;
}

function errorOf(one: Passes): number {
  return Math.sqrt((shareOf(one) * (1 - shareOf(one))) / one.graded);
}

/** The standard error of the difference: the larger of the one from the pooled rate, and the one from the two separate rates. */
function errorOfDifference(before: Passes, after: Passes): number {
  const pooled = (before.passed + after.passed) / (before.graded + after.graded);
  const equal = Math.sqrt(pooled * (1 - pooled) * (1 / before.graded + 1 / after.graded));
  return Math.max(equal, Math.hypot(errorOf(before), errorOf(after)));
}
