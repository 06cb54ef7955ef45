// Turns a budget into limits. Each limit is on one quantity that is counted from the records.
import type { BudgetSpec } from './run-spec.js';

/** What a run has used since its first start. For a fork, the steps that it shares with its parent do not count. */
export interface Spent {
  tokens: number;
  gpu_seconds: number;
  wall_seconds: number;
}

export interface BudgetLimit {
  name: 'max_tokens' | 'max_wall_s' | 'max_gpu_hours' | 'max_usd';
  limit: number;
  /** The quantity that is limited; one unit of it counts as `each` units of the limit. */
  counts: keyof Spent;
  each: number;
}

export function limitsOf({ max_tokens, max_wall_s, max_gpu_hours, ...usd }: BudgetSpec): BudgetLimit[] {
  const limits: (Omit<BudgetLimit, 'limit'> & { limit: number | undefined })[] = [
    { name: 'max_tokens', limit: max_tokens, counts: 'tokens', each: 1 },
    { name: 'max_wall_s', limit: max_wall_s, counts: 'wall_seconds', each: 1 },
    { name: 'max_gpu_hours', limit: max_gpu_hours, counts: 'gpu_seconds', each: 1 / 3600 },
    {
      ...{ name: 'max_usd', limit: usd.max_usd, counts: 'gpu_seconds' },
      each: (usd.usd_per_gpu_hour ?? 0) / 3600,
    },
  ];
  return limits.flatMap(({ limit, ...one }) => (limit === undefined ? [] : [{ ...one, limit }]));
}
