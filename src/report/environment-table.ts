// Per environment and per template: baseline → final, the change, and what it means.
import type { EvaluationFigure } from './run-history.js';

export type EnvironmentStatus = 'saturated' | 'improving' | 'flat' | 'declining' | 'failing' | 'new';

export interface EnvironmentRow {
  env_key: string;
  graded: number;
  /** Null: the baseline has no graded episode here. */
  before: number | null;
  /** Null: every outcome is unknown. */
  after: number | null;
  delta: number | null;
  /** One standard error of `after`. */
  error: number | null;
  unknown: number;
  mean_turns: number;
  /** Share of tool calls that were answered by an error. */
  tool_error_rate: number | null;
  status: EnvironmentStatus;
}

export interface TemplateRow {
  template: string;
  graded: number;
  before: number | null;
  after: number | null;
  delta: number | null;
}

/** Changes smaller than this are called flat: with 100 tasks, one standard error of a pass rate is about 0.05. */
const noticeable = 0.05;
const allButPerfect = 0.95;
const allButNothing = 0.1;

/** One row an environment, and a last one for all of them where there are several. */
export function environmentRows(before: EvaluationFigure, after: EvaluationFigure): EnvironmentRow[] {
  const rows = Object.entries(after.result.environments).map(([env_key, final]) => {
    const base = before.result.environments[env_key];
    const figures = compared(
      base && base.graded > 0 ? base.pass_at_1 : null,
      final.graded > 0 ? final.pass_at_1 : null,
    );
    const calls = final.mean_tool_calls * (final.graded + final.unknown);
    return {
      env_key,
      graded: final.graded,
      ...figures,
      error: standardError(figures.after, final.graded),
      unknown: final.unknown,
      mean_turns: final.mean_turns,
      tool_error_rate: calls > 0 ? final.tool_errors / calls : null,
      status: statusOf(figures.before, figures.after),
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
  const figures = compared(
    before.result.graded > 0 ? before.result.pass_at_1 : null,
    after.result.graded > 0 ? after.result.pass_at_1 : null,
  );
  return {
    env_key: 'all',
    graded: rows.reduce((sum, row) => sum + row.graded, 0),
    ...figures,
    error: standardError(figures.after, after.result.graded),
    unknown: after.result.unknown,
    mean_turns:
      total > 0 ? weighted((i) => (environments[i]?.mean_turns ?? 0) * (episodes[i] ?? 0)) / total : 0,
    tool_error_rate: calls > 0 ? weighted((i) => environments[i]?.tool_errors ?? 0) / calls : null,
    status: statusOf(figures.before, figures.after),
  };
}

/** The weakest first: they say where to look. */
export function templateRows(before: EvaluationFigure, after: EvaluationFigure): TemplateRow[] {
  const share = (of: EvaluationFigure, template: string): number | null => {
    const counted = of.result.templates[template];
    return counted && counted.graded > 0 ? counted.passed / counted.graded : null;
  };
  return Object.entries(after.result.templates)
    .map(([template, { graded }]) => ({
      template,
      graded,
      ...compared(share(before, template), share(after, template)),
    }))
    .sort((a, b) => (a.after ?? 0) - (b.after ?? 0) || a.template.localeCompare(b.template));
}

export function statusOf(before: number | null, after: number | null): EnvironmentStatus {
  if (before === null || after === null) return 'new';
  if (after - before >= noticeable) return 'improving';
  if (before - after >= noticeable) return 'declining';
  if (after >= allButPerfect) return 'saturated';
  return after < allButNothing ? 'failing' : 'flat';
}

function compared(
  before: number | null,
  after: number | null,
): Pick<EnvironmentRow, 'before' | 'after' | 'delta'> {
  return { before, after, delta: before === null || after === null ? null : after - before };
}

function standardError(share: number | null, count: number): number | null {
  return share === null || count === 0 ? null : Math.sqrt((share * (1 - share)) / count);
}
