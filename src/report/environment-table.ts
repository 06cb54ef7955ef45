// Tables by environment and by task template: pass@1 of the baseline and of the final evaluation, the change, and the regime.
import { errorShare } from '../rl/metrics.js';
import {
  largestPassAtK,
  passRateChange,
  passRateOf,
  type PassRate,
  type SeveralSamples,
} from '../spec/pass-rate.js';
import type { EvaluationFigure } from './history/evaluations.js';
import { type CountedRate, type Regime, regimeOf } from './regime.js';

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
  regime: Regime;
}

interface TemplateRow {
  template: string;
  graded: number;
  before: number | null;
  after: number | null;
  delta: number | null;
}

/** One row for each environment, and a last row for all of them if there are several. */
export function environmentRows(before: EvaluationFigure, after: EvaluationFigure): EnvironmentRow[] {
  const rows = Object.entries(after.result.environments).map(([env_key, final]) => {
    const base = before.result.environments[env_key];
    const calls = final.mean_tool_calls * (final.graded + final.unknown);
    return {
      env_key,
      graded: final.graded,
      ...compared(base?.pass_at_1 ?? null, final.pass_at_1),
      error: standardError(final.pass_at_1, final.graded),
      largest: largestOf(base ?? {}, final),
      unknown: final.unknown,
      mean_turns: final.mean_turns,
      tool_error_rate: errorShare(final.tool_errors, calls),
      regime: regimeOf(base && counted(before, base), counted(after, final)),
    };
  });
  return rows.length > 1 ? [...rows, allOf(before, after, rows)] : rows;
}

function counted({ result }: EvaluationFigure, one: CountedRate): CountedRate {
  return { ...one, samples: result.samples_per_task ?? 1 };
}

function allOf(before: EvaluationFigure, after: EvaluationFigure, rows: EnvironmentRow[]): EnvironmentRow {
  const environments = Object.values(after.result.environments);
  const episodes = environments.map((one) => one.graded + one.unknown);
  const total = episodes.reduce((sum, count) => sum + count, 0);
  const weighted = (of: (index: number) => number): number =>
    environments.reduce((sum, _, index) => sum + of(index), 0);
  const calls = weighted((i) => (environments[i]?.mean_tool_calls ?? 0) * (episodes[i] ?? 0));
  return {
    env_key: 'all',
    graded: rows.reduce((sum, row) => sum + row.graded, 0),
    ...compared(before.result.pass_at_1, after.result.pass_at_1),
    error: standardError(after.result.pass_at_1, after.result.graded),
    largest: largestOf(before.result, after.result),
    unknown: after.result.unknown,
    mean_turns:
      total > 0 ? weighted((i) => (environments[i]?.mean_turns ?? 0) * (episodes[i] ?? 0)) / total : 0,
    tool_error_rate: errorShare(
      weighted((i) => environments[i]?.tool_errors ?? 0),
      calls,
    ),
    regime: regimeOf(counted(before, before.result), counted(after, after.result)),
  };
}

/** Sorted by pass rate, lowest first: these templates need attention. */
export function templateRows(before: EvaluationFigure, after: EvaluationFigure): TemplateRow[] {
  const rate = (of: EvaluationFigure, template: string): PassRate => {
    const { passed = 0, graded = 0 } = of.result.templates[template] ?? {};
    return passRateOf(passed, graded);
  };
  return Object.entries(after.result.templates)
    .map(([template, { graded }]) => ({
      template,
      graded,
      ...compared(rate(before, template), rate(after, template)),
    }))
    .sort((a, b) => (a.after ?? 0) - (b.after ?? 0) || a.template.localeCompare(b.template));
}

function largestOf(before: SeveralSamples, after: SeveralSamples): EnvironmentRow['largest'] {
  const largest = largestPassAtK(after);
  if (largest === null) return null;
  const { k, rate } = largest;
  return { k, before: before.pass_at_k?.[k] ?? null, after: rate };
}

function compared(before: PassRate, after: PassRate): Pick<EnvironmentRow, 'before' | 'after' | 'delta'> {
  return { before, after, delta: passRateChange(before, after) };
}

function standardError(share: PassRate, count: number): number | null {
  return share === null || count === 0 ? null : Math.sqrt((share * (1 - share)) / count);
}
