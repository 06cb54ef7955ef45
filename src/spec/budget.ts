// Turns a budget into limits. Each limit is on one quantity that is counted from the records.
import type { BudgetSpec } from './run-spec.js';

/** What was sent to a Tinker server, repeats included. */
export interface ServedTokens {
  /** Tokens of forward and backward passes. */
  train: number;
  /** Tokens of prompts: before each turn, the whole transcript. */
  prefill: number;
  /** Sampled tokens that came back. */
  sample: number;
  /** Requests to save a state, for the sampler too. They have no price. */
  saves: number;
}

export type TokenPrices = NonNullable<BudgetSpec['usd_per_million']>;

/** What a run has used since its first start. For a fork, the steps that it shares with its parent do not count. */
export interface Spent {
  tokens: number;
  gpu_seconds: number;
  wall_seconds: number;
  /** Absent if nothing was sent to a Tinker server. */
  served?: ServedTokens;
}

export interface BudgetLimit {
  name: 'max_tokens' | 'max_wall_s' | 'max_gpu_hours' | 'max_usd';
  limit: number;
  /** The quantity that is limited; one unit of it counts as `each` units of the limit. */
  counts: Exclude<keyof Spent, 'served'>;
  each: number;
  /** What was sent to a Tinker server counts as well, at these prices. */
  usd_per_million?: TokenPrices;
}

export function limitsOf({ max_tokens, max_wall_s, max_gpu_hours, ...usd }: BudgetSpec): BudgetLimit[] {
  const { max_usd, usd_per_gpu_hour: hour = 0, usd_per_million } = usd;
  const limits: (Omit<BudgetLimit, 'limit'> & { limit: number | undefined })[] = [
    { name: 'max_tokens', limit: max_tokens, counts: 'tokens', each: 1 },
    { name: 'max_wall_s', limit: max_wall_s, counts: 'wall_seconds', each: 1 },
    { name: 'max_gpu_hours', limit: max_gpu_hours, counts: 'gpu_seconds', each: 1 / 3600 },
    {
      ...{ name: 'max_usd', limit: max_usd, counts: 'gpu_seconds', each: hour / 3600 },
      ...(usd_per_million ? { usd_per_million } : {}),
    },
  ];
  return limits.flatMap(({ limit, ...one }) => (limit === undefined ? [] : [{ ...one, limit }]));
}

/** In the limit's unit. */
export function usedOf({ counts, each, usd_per_million: prices }: BudgetLimit, spent: Spent): number {
  return spent[counts] * each + usdOf(spent.served, prices);
}

/** 0 without prices. */
export function usdOf(served: ServedTokens | undefined, prices: TokenPrices | undefined): number {
  return pricedTokens.reduce((sum, kind) => sum + ((served?.[kind] ?? 0) * (prices?.[kind] ?? 0)) / 1e6, 0);
}

export function sumOfServed(
  one: ServedTokens | undefined,
  other: ServedTokens | undefined,
): ServedTokens | undefined {
  if (!one || !other) return one ?? other;
  return {
    train: one.train + other.train,
    prefill: one.prefill + other.prefill,
    sample: one.sample + other.sample,
    saves: one.saves + other.saves,
  };
}

/** What was sent, as it is shown. */
export interface ServedLine {
  kind: keyof ServedTokens;
  number: number;
  /** Absent without a price. */
  usd?: number;
}

export function servedLines(served: ServedTokens, prices: TokenPrices | undefined): ServedLine[] {
  return [
    ...pricedTokens.map((kind) => ({
      ...{ kind, number: served[kind] },
      ...(prices ? { usd: (served[kind] * prices[kind]) / 1e6 } : {}),
    })),
    { kind: 'saves', number: served.saves },
  ];
}

const pricedTokens = ['train', 'prefill', 'sample'] as const;
