// Tables by environment and by task template: pass@1 of the baseline and of the final evaluation, the change, and what the change means.
import { errorShare } from '../rl/metrics.js';
import { largestPassAtK, type PassRate, type SeveralSamples } from '../spec/pass-rate.js';
import type { EvaluationFigure } from './history/evaluations.js';

type EnvironmentStatus = 'saturated' | 'improving' | 'flat' | 'unclear' | 'declining' | 'failing' | 'new';

export interface EnvironmentRow {
  env_key: string;
  graded: number;
  /** Null if the baseline has no graded episode here. */
  before: number | null;
  /** Null if all outcomes are unknown. */
  after: number | null;
  delta: number | null;
  /** Standard error of `after`. */
  error: number | null;
  /** pass@k for the largest k of the later evaluation; null if its suite has one sample a task. */
  largest: { k: number; before: number | null; after: number } | null;
  unknown: number;
  mean_turns: number;
  /** Share of tool calls that returned an error. */
  tool_error_rate: number | null;
  status: EnvironmentStatus;
}

interface TemplateRow {
  template: string;
  graded: number;
  before: number | null;
  after: number | null;
  delta: number | null;
}

interface CountedRate {
  share: number;
  graded: number;
}

/**
 * A change counts if it is at least this many standard errors of the difference. Chance alone causes such a change once in twenty times.
 */
const significant = 2;
/** If even a change of this size would not count, there are too few episodes to say "no change". */
const noticeable = 0.1;
/** The rule in words, for readers of the table. */
export const statusRule =
  'improving or declining: the change is more than two standard errors of the difference; unclear: there are too few episodes to detect ' +
  'even a change of ten points';
const allButPerfect = 0.95;
const allButNothing = 0.1;

/** One row for each environment, and a last row for all of them if there are several. */
export function environmentRows(before: EvaluationFigure, after: EvaluationFigure): EnvironmentRow[] {
  const rows = Object.entries(after.result.environments).map(([env_key, final]) => {
    const base = before.result.environments[env_key];
    const [then, now] = [base ? rateOf(base) : null, rateOf(final)];
    const figures = compared(then, now);
    const calls = final.mean_tool_calls * (final.graded + final.unknown);
    return {
      env_key,
      graded: final.graded,
      ...figures,
      error: standardError(figures.after, final.graded),
      largest: largestOf(base ?? {}, final),
      unknown: final.unknown,
      mean_turns: final.mean_turns,
      tool_error_rate: errorShare(final.tool_errors, calls),
      status: statusOf(then, now),
    };
  });
  return rows.length > 1 ? [...rows, allOf(before, after, rows)] : rows;
}

function allOf(before: EvaluationFigure, after: EvaluationFigure, rows: EnvironmentRow[]): EnvironmentRow {
  const environments = Object.values(after.result.environments);
  const episodes = environments.map((one) => one.graded + one.unknown);
  const total = episodes.reduce((sum, count) => sum + count, 0);
  const weighted = (of: (index: number) => number): number =>
    environments.reduce((sum, _, index) => sum + of(index), 0);
  const calls = weighted((i) => (environments[i]?.mean_tool_calls ?? 0) * (episodes[i] ?? 0));
  const [then, now] = [rateOf(before.result), rateOf(after.result)];
  const figures = compared(then, now);
  return {
    env_key: 'all',
    graded: rows.reduce((sum, row) => sum + row.graded, 0),
    ...figures,
    error: standardError(figures.after, after.result.graded),
    largest: largestOf(before.result, after.result),
    unknown: after.result.unknown,
    mean_turns:
      total > 0 ? weighted((i) => (environments[i]?.mean_turns ?? 0) * (episodes[i] ?? 0)) / total : 0,
    tool_error_rate: errorShare(
      weighted((i) => environments[i]?.tool_errors ?? 0),
      calls,
    ),
    status: statusOf(then, now),
  };
}

/** Sorted by pass rate, lowest first: these templates need attention. */
export function templateRows(before: EvaluationFigure, after: EvaluationFigure): TemplateRow[] {
  const rate = (of: EvaluationFigure, template: string): CountedRate | null => {
    const counted = of.result.templates[template];
    return counted && counted.graded > 0
      ? { share: counted.passed / counted.graded, graded: counted.graded }
      : null;
  };
  return Object.entries(after.result.templates)
    .map(([template, { graded }]) => ({
      template,
      graded,
      ...compared(rate(before, template), rate(after, template)),
    }))
    .sort((a, b) => (a.after ?? 0) - (b.after ?? 0) || a.template.localeCompare(b.template));
}

/** An argument is null if it has no graded episode. */
export function statusOf(before: CountedRate | null, after: CountedRate | null): EnvironmentStatus {
  if (before === null || after === null) return 'new';
  const change = after.share - before.share;
  const margin = significant * errorOfDifference(before, after);
  if (Math.abs(change) > margin) return change > 0 ? 'improving' : 'declining';
  if (margin > noticeable) return 'unclear';
  if (after.share >= allButPerfect) return 'saturated';
  return after.share < allButNothing ? 'failing' : 'flat';
}

/**
 * Standard error of the difference under the assumption of equal rates, from the pooled rate. It is 0 only if both evaluations passed all
 * their episodes, or both passed none.
 */
function errorOfDifference(before: CountedRate, after: CountedRate): number {
  const graded = before.graded + after.graded;
  const pooled = (before.share * before.graded + after.share * after.graded) / graded;
  return Math.sqrt(pooled * (1 - pooled) * (1 / before.graded + 1 / after.graded));
}

function rateOf({ pass_at_1, graded }: { pass_at_1: PassRate; graded: number }): CountedRate | null {
  return pass_at_1 === null ? null : { share: pass_at_1, graded };
}

function largestOf(before: SeveralSamples, after: SeveralSamples): EnvironmentRow['largest'] {
  const largest = largestPassAtK(after);
  if (largest === null) return null;
  const { k, rate } = largest;
  return { k, before: before.pass_at_k?.[k] ?? null, after: rate };
}

function compared(
  before: CountedRate | null,
  after: CountedRate | null,
): Pick<EnvironmentRow, 'before' | 'after' | 'delta'> {
  return {
    before: before?.share ?? null,
    after: after?.share ?? null,
    delta: before === null || after === null ? null : after.share - before.share,
  };
}

function standardError(share: number | null, count: number): number | null {
  return share === null || count === 0 ? null : Math.sqrt((share * (1 - share)) / count);
}
