// Per environment: baseline → final, the change, and what it means.
import type { EvaluationFigure } from './run-history.js';

export type EnvironmentStatus = 'saturated' | 'improving' | 'flat' | 'declining' | 'failing';

export interface EnvironmentRow {
  env_key: string;
  tasks: number;
  before: number;
  after: number;
  delta: number;
  unknown: number;
  mean_turns: number;
  tool_errors: number;
  status: EnvironmentStatus;
}

/** Changes smaller than this are called flat: with 100 tasks, one standard error of a pass rate is about 0.05. */
const noticeable = 0.05;

export function environmentRows(before: EvaluationFigure, after: EvaluationFigure): EnvironmentRow[] {
  return Object.entries(after.result.environments).map(([env_key, final]) => {
    const baseline = before.result.environments[env_key]?.pass_at_1 ?? 0;
    return {
      env_key,
      tasks: final.graded + final.unknown,
      before: baseline,
      after: final.pass_at_1,
      delta: final.pass_at_1 - baseline,
      unknown: final.unknown,
      mean_turns: final.mean_turns,
      tool_errors: final.tool_errors,
      status: statusOf(baseline, final.pass_at_1),
    };
  });
}

export function statusOf(before: number, after: number): EnvironmentStatus {
  if (after - before >= noticeable) return 'improving';
  if (before - after >= noticeable) return 'declining';
  if (after >= 0.95) return 'saturated';
  return after < 0.1 ? 'failing' : 'flat';
}
