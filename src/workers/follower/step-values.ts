// Turns a record's figures into a point: an update's figures keep their names, an evaluation's get SkyRL's names.
import {
  evaluationPointId,
  type MetricPoint,
  stepPointId,
} from '../../integrations/tracking/metric-point.js';
import type { EvaluationResult } from '../../spec/records/evaluation-records.js';
import { passRatesOf } from '../../spec/pass-rate.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { type FaultTotals, faultsAfter } from '../../store/runs/fault-figures.js';
import { costOf, type Prices, spentBy } from '../../rl/spending.js';

/** Totals of a run's own steps up to `step`. They are added in the order of the steps, because sums of floats depend on the order. */
export interface RunningTotals extends FaultTotals {
  tokens: number;
  gpu_seconds: number;
  usd: number;
}

/** `update`: as returned by `projectFaults`. `prices`: the prices in the start that planned the step. */
export function plusStep(before: RunningTotals, update: UpdateRecord, prices: Prices): RunningTotals {
  const step = spentBy(update);
  return {
    ...faultsAfter(update),
    tokens: before.tokens + step.tokens,
    gpu_seconds: before.gpu_seconds + step.gpu_seconds,
    usd: before.usd + costOf(step, prices),
  };
}

/** `update`: as returned by `projectFaults`. `totals`: including this step. */
export function stepPoint(update: UpdateRecord, totals: RunningTotals): MetricPoint {
  const { identity, observed } = update;
  const { step, applied } = identity;
  const timings = Object.entries(observed.timings_ms).map(([name, ms]) => [`timing/${name}`, ms / 1000]);
  return {
    id: stepPointId(step),
    step,
    at: observed.committed_at,
    values: {
      ...update.observed.metrics,
      ...(Object.fromEntries(timings) as Record<string, number>),
      ...unknownShare(identity.outcomes),
      'trainer/global_step': step,
      'trainer/applied': applied === true ? 1 : 0,
      'cost/tokens': totals.tokens,
      'cost/gpu_hours': totals.gpu_seconds / 3600,
      ...(totals.usd > 0 ? { 'cost/usd': totals.usd } : {}),
    },
  };
}

function unknownShare(outcomes: readonly (number | null)[][]): Record<string, number> {
  const all = outcomes.flat();
  if (all.length === 0) return {};
  return { 'reward/unknown_ratio': all.filter((value) => value === null).length / all.length };
}

/**
 * The interval suite gets SkyRL's names (`eval/{env}/…`, `eval/all/…`). Another suite's names contain the suite's name, so that its pass
 * rates do not appear as jumps in the interval suite's curve.
 */
export function evaluationPoint(step: number, result: EvaluationResult): MetricPoint {
  const { suite, suite_name, observed } = result;
  const suffix = suite_name === 'interval' ? '' : `/${suite_name}`;
  const values: Record<string, number> = { ...observed.metrics, [`timing/eval${suffix}`]: observed.seconds };
  const { graded, unknown } = result;
  const add = (part: string, figures: Record<string, number>): void => {
    for (const [name, value] of Object.entries(figures)) values[`eval${suffix}/${part}/${name}`] = value;
  };
  add('all', { ...passRatesOf(result), graded, unknown });
  for (const [env, figures] of Object.entries(result.environments)) {
    const { pass_at_1: _, pass_at_k: __, pass_at_n: ___, ...others } = figures;
    add(env, { ...passRatesOf(figures), ...others });
  }
  return { id: evaluationPointId(step, suite_name, suite), step, at: observed.committed_at, values };
}
