// A run's spending, computed from the records of its steps, so that restarts lose nothing.
import { type ServedTokens, type Spent, sumOfServed, usdOf } from '../spec/budget.js';
import type { UpdateRecord } from '../spec/records/update.js';
import type { BudgetSpec } from '../spec/run-spec.js';

/** What steps use. */
export type SpentInSteps = Omit<Spent, 'wall_seconds'>;

/** An update's metrics with what was sent to a Tinker server since the update before. */
const servedMetrics = {
  train: 'served/train_tokens',
  prefill: 'served/prefill_tokens',
  sample: 'served/sample_tokens',
  saves: 'served/saves',
} as const;

export function metricsOfServed({ train, prefill, sample, saves }: ServedTokens): Record<string, number> {
  return {
    [servedMetrics.train]: train,
    [servedMetrics.prefill]: prefill,
    [servedMetrics.sample]: sample,
    [servedMetrics.saves]: saves,
  };
}

/**
 * Spending of one step. GPU time is the time with at least one engine verb or environment call in flight, evaluations included. If the
 * worker was restarted since the last step, only the update's time is known. Nodes that only play episodes count the time of their calls.
 */
export function spentBy({ identity, observed }: UpdateRecord): SpentInSteps {
  const { metrics, timings_ms } = observed;
  return {
    tokens: Math.round((metrics['generate/avg_num_tokens'] ?? 0) * identity.outcomes.flat().length),
    gpu_seconds:
      ((timings_ms['in_flight'] ?? timings_ms['policy_train'] ?? 0) + (timings_ms['elsewhere'] ?? 0)) / 1000,
    ...servedIn(metrics),
  };
}

function servedIn(metrics: Record<string, number>): { served?: ServedTokens } {
  if (metrics[servedMetrics.train] === undefined) return {};
  const figure = (kind: keyof ServedTokens): number => metrics[servedMetrics[kind]] ?? 0;
  return {
    served: {
      ...{ train: figure('train'), prefill: figure('prefill') },
      ...{ sample: figure('sample'), saves: figure('saves') },
    },
  };
}

export function sumOfSpent(one: SpentInSteps, other: SpentInSteps): SpentInSteps {
  const served = sumOfServed(one.served, other.served);
  return {
    tokens: one.tokens + other.tokens,
    gpu_seconds: one.gpu_seconds + other.gpu_seconds,
    ...(served ? { served } : {}),
  };
}

/** Spending of the run's own steps. The steps that a fork shares with its parent are left out. */
export function spentInAll(run: string, updates: readonly UpdateRecord[]): SpentInSteps {
  const own = updates.filter(({ identity }) => identity.run === run).map(spentBy);
  return own.reduce(sumOfSpent, { tokens: 0, gpu_seconds: 0 });
}

export type Prices = Pick<BudgetSpec, 'usd_per_gpu_hour' | 'usd_per_million'>;

/** USD; 0 without a price. */
export function costOf({ gpu_seconds, served }: SpentInSteps, prices: Prices | undefined): number {
  return (gpu_seconds / 3600) * (prices?.usd_per_gpu_hour ?? 0) + usdOf(served, prices?.usd_per_million);
}
