// Figures of a finished run from its records alone.
import { auditRun } from '../../src/activities/reports/audit-run.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { lastCommittedStep, readUpdate } from '../../src/store/runs/run-records.js';
import { median } from '../figures/figure.js';

export interface RecordFigures {
  steps: number;
  /** Episodes that were started again although their record existed. */
  r9_violations: number;
  /** All other violations: a step that was applied twice, was skipped, or does not follow from the step before it. */
  updates_twice_or_skipped: number;
  logprob_difference_max: number;
  /** GRPO steps with a learning signal. Only their updates compare log-probs. */
  compared_steps: number;
  /** Time of a GRPO step in which no engine request and no environment call was in flight. */
  orchestration_ms_p50: number;
  orchestration_ms_p90: number;
  orchestration_steps: number;
}

export async function recordFigures(store: ObjectStore, run: string): Promise<RecordFigures> {
  const audit = await auditRun(store, run);
  const orchestration: number[] = [];
  let [difference, compared] = [0, 0];
  for (let step = 1; step < audit.steps; step++) {
    const { identity, observed } = await readUpdate(store, run, step);
    if (identity.kind !== 'grpo') continue;
    const { step: wall, in_flight: busy } = observed.timings_ms;
    if (wall !== undefined && busy !== undefined) orchestration.push(wall - busy);
    const one = observed.metrics['policy/rollout_train_logprob_diff_max'];
    if (one === undefined) continue;
    difference = Math.max(difference, one);
    compared += 1;
  }
  const r9 = audit.violations.filter(({ rule }) => rule === 'R9').length;
  return {
    steps: await lastCommittedStep(store, run),
    r9_violations: r9,
    updates_twice_or_skipped: audit.violations.length - r9,
    logprob_difference_max: difference,
    compared_steps: compared,
    orchestration_ms_p50: median(orchestration),
    orchestration_ms_p90:
      [...orchestration].sort((a, b) => a - b)[Math.floor(orchestration.length * 0.9)] ?? 0,
    orchestration_steps: orchestration.length,
  };
}
