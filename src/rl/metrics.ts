// Metrics of a step's rewards and episodes, under SkyRL's names.
import { type PassRate, passRateOf } from '../spec/pass-rate.js';
import type { EpisodeRecord } from '../spec/records/episode.js';
import type { PlanRecord } from '../spec/records/plan.js';
import type { BatchIdentity } from '../spec/records/update.js';
import { isPass } from './episode-reward.js';

/** Rewards of one prompt's samples; null for an unknown outcome. */
interface RewardGroup {
  env: string;
  values: readonly (number | null)[];
}

/** A figure is null if no graded sample counts towards it. */
interface RewardFigures {
  /** Share of passes among graded samples. */
  pass_at_1: PassRate;
  /** Share of prompts with any reward above 0. */
  pass_at_n: number | null;
  /** Mean of the population variance over prompts with ≥ 2 graded samples. */
  variance_per_prompt: number | null;
  /** Share of these prompts with a variance above 0: GRPO learns only from them. */
  signal_ratio: number | null;
  avg_raw_reward: number | null;
  /** Mean of the rewards above 0; 0 if there are graded rewards but none above 0. */
  mean_positive_reward: number | null;
}

interface Arithmetic {
  mean(values: readonly number[]): number;
  variance(values: readonly number[]): number;
}

/** Equal rewards have no variance, whatever the rounding: 0.1 three times has a mean that is not 0.1. */
const exact: Arithmetic = {
  mean: (values) => (areEqual(values) ? (values[0] ?? 0) : ratio(compensatedSum(values), values.length)),
  variance: (values) => (areEqual(values) ? 0 : variance(values)),
};

export function rewardFigures(
  groups: readonly RewardGroup[],
  { mean, variance }: Arithmetic = exact,
): RewardFigures {
  const meanIfAny = (values: readonly number[]): number | null => (values.length === 0 ? null : mean(values));
  const graded = groups
    .map(({ values }) => values.filter((value) => value !== null))
    .filter((values) => values.length > 0);
  const values = graded.flat();
  const variances = graded.filter((values) => values.length > 1).map((group) => variance(group));
  return {
    pass_at_1: passRateOf(values.filter(isPass).length, values.length),
    pass_at_n: meanIfAny(graded.map((values) => Number(values.some((value) => value > 0)))),
    variance_per_prompt: meanIfAny(variances),
    signal_ratio: meanIfAny(variances.map((value) => Number(value > 0))),
    avg_raw_reward: meanIfAny(values),
    mean_positive_reward: values.length === 0 ? null : mean(values.filter((value) => value > 0)),
  };
}

/** `reward/{env}/…` for each environment, and averages over all prompts. Figures without a graded sample are left out. */
export function rewardMetrics(
  groups: readonly RewardGroup[],
  arithmetic: Arithmetic = exact,
): Record<string, number> {
  const metrics: Record<string, number> = {};
  const add = (name: string, value: number | null): void => {
    if (value !== null) metrics[name] = value;
  };
  for (const env of environmentsOf(groups.map((group) => group.env))) {
    const figures = rewardFigures(
      groups.filter((group) => group.env === env),
      arithmetic,
    );
    for (const [name, value] of Object.entries<number | null>({ ...figures }))
      add(`reward/${env}/${name}`, value);
  }
  const all = rewardFigures(groups, arithmetic);
  const values = groups.flatMap((group) => group.values).filter((value) => value !== null);
  add('reward/avg_pass_at_1', all.pass_at_1);
  add('reward/avg_pass_at_n', all.pass_at_n);
  add('reward/avg_raw_reward', all.avg_raw_reward);
  // SkyRL defines this name twice. Here negative rewards count as 0, and the mean is over all samples.
  if (values.length > 0)
    add('reward/mean_positive_reward', arithmetic.mean(values.map((value) => Math.max(value, 0))));
  add('reward/variance_per_prompt', all.variance_per_prompt);
  add('reward/signal_ratio', all.signal_ratio);
  add('reward/unknown', groups.flatMap((group) => group.values).filter((value) => value === null).length);
  return metrics;
}

/**
 * A batch's reward metrics as in batch files of version 2: without pass@1, and with 0 if nothing was graded. They are part of the file's
 * bytes and must never change; `stepMetrics` returns the metrics that a step shows.
 */
export function batchRewardMetrics(groups: readonly RewardGroup[]): Record<string, number> {
  const metrics = rewardMetrics(groups, { mean, variance });
  const kept = ['pass_at_n', 'variance_per_prompt', 'signal_ratio', 'mean_positive_reward'];
  const names = [
    ...environmentsOf(groups.map((group) => group.env)).flatMap((env) =>
      kept.map((name) => `reward/${env}/${name}`),
    ),
    ...['avg_pass_at_n', 'avg_raw_reward', 'mean_positive_reward', 'variance_per_prompt', 'signal_ratio'].map(
      (name) => `reward/${name}`,
    ),
    'reward/unknown',
  ];
  return Object.fromEntries(names.map((name) => [name, metrics[name] ?? 0]));
}

/** A step's episode metrics for its record: those of the batch, but with reward metrics over graded outcomes only. */
export function stepMetrics(
  batch: Readonly<Record<string, number>>,
  groups: readonly RewardGroup[],
): Record<string, number> {
  const outcomes = groups.flatMap(({ values }) => values);
  const some = (holds: (value: number) => boolean): boolean =>
    outcomes.some((value) => value !== null && holds(value));
  const others = Object.entries(batch).filter(
    ([name]) =>
      !name.startsWith('reward/') &&
      (name !== tokensOfRewarded || some((value) => value > 0)) &&
      (name !== tokensOfUnrewarded || some((value) => value <= 0)),
  );
  return { ...Object.fromEntries(others), ...rewardMetrics(groups) };
}

/**
 * The episode metrics of a step. A rebased step has sampled nothing, so its figures on sampled tokens are left out; a budget would count
 * them.
 */
export function episodeFigures(
  plan: PlanRecord,
  { metrics, outcomes }: BatchIdentity,
): Record<string, number> {
  if (plan.kind !== 'grpo') return metrics;
  const groups = plan.slots.map(({ env_key }, slot) => ({ env: env_key, values: outcomes[slot] ?? [] }));
  const figures = stepMetrics(metrics, groups);
  return plan.rebased ? withoutSampling(figures) : figures;
}

function withoutSampling(metrics: Record<string, number>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !name.startsWith('generate/')));
}

/** The engine's metrics under SkyRL's names. */
export function policyMetrics(metrics: Record<string, number>): Record<string, number> {
  const names: Record<string, string> = {
    loss: 'policy/final_loss',
    grad_norm: 'policy/grad_norm',
    clip_ratio: 'policy/ppo_clip_ratio',
    max_logprob_difference: 'policy/rollout_train_logprob_diff_max',
    kl: 'policy/policy_kl',
    entropy: 'policy/policy_entropy',
    tis_weight: 'policy/tis_imp_ratio',
  };
  return Object.fromEntries(
    Object.entries(metrics).map(([name, value]) => [names[name] ?? `policy/${name}`, value]),
  );
}

const tokensOfRewarded = 'generate/avg_tokens_non_zero_rewards';
const tokensOfUnrewarded = 'generate/avg_tokens_zero_rewards';

type EpisodeFigures = Pick<EpisodeRecord, 'env_key' | 'metrics' | 'logprobs' | 'outcome'>;

/**
 * `environment/…`, `environment/{env}/…` and `generate/…` of a batch; 0 if there is nothing to count. `generate/…` counts sampled tokens.
 */
export function episodeMetrics(episodes: readonly EpisodeFigures[]): Record<string, number> {
  const metrics: Record<string, number> = {};
  const add = (prefix: string, part: readonly EpisodeFigures[]): void => {
    const turns = part.map((episode) => episode.metrics.turns);
    const calls = sum(part.map((episode) => episode.metrics.tool_calls));
    const errors = sum(part.map((episode) => episode.metrics.tool_errors));
    metrics[`${prefix}/avg_turns`] = mean(turns);
    metrics[`${prefix}/avg_tool_calls`] = part.length === 0 ? 0 : calls / part.length;
    metrics[`${prefix}/tool_calls_per_turn`] = ratio(calls, sum(turns));
    metrics[`${prefix}/avg_tool_errors`] = ratio(errors, part.length);
    metrics[`${prefix}/total_tool_errors`] = errors;
    metrics[`${prefix}/tool_error_rate`] = ratio(errors, calls);
  };
  for (const env of environmentsOf(episodes.map((episode) => episode.env_key))) {
    const part = episodes.filter((episode) => episode.env_key === env);
    const turns = part.map((episode) => episode.metrics.turns);
    add(`environment/${env}`, part);
    metrics[`environment/${env}/min_turns`] = least(turns);
    metrics[`environment/${env}/max_turns`] = most(turns);
    metrics[`environment/${env}/num_episodes`] = part.length;
  }
  add('environment', episodes);
  metrics['environment/total_episodes'] = episodes.length;
  const tokens = episodes.map((episode) => episode.logprobs.length);
  const tokensWhere = (passed: boolean): number[] =>
    episodes.flatMap(({ outcome, logprobs }) =>
      outcome.status === 'graded' && outcome.value > 0 === passed ? [logprobs.length] : [],
    );
  metrics['generate/min_num_tokens'] = least(tokens);
  metrics['generate/max_num_tokens'] = most(tokens);
  metrics['generate/avg_num_tokens'] = mean(tokens);
  metrics['generate/std_num_tokens'] = Math.sqrt(variance(tokens));
  metrics[tokensOfRewarded] = mean(tokensWhere(true));
  metrics[tokensOfUnrewarded] = mean(tokensWhere(false));
  return metrics;
}

/** Share of attempted tool calls that failed; null without a call. `calls` may be the product of a mean, which rounds: the share is at most 1. */
export function errorShare(errors: number, calls: number): number | null {
  const attempted = Math.max(calls, errors);
  return attempted > 0 ? errors / attempted : null;
}

function environmentsOf(names: readonly string[]): string[] {
  return [...new Set(names)].sort();
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function ratio(part: number, whole: number): number {
  return whole === 0 ? 0 : part / whole;
}

function mean(values: readonly number[]): number {
  return ratio(sum(values), values.length);
}

const areEqual = (values: readonly number[]): boolean => values.every((value) => value === values[0]);

/** Neumaier's sum: the rounding errors are summed separately and added at the end. */
function compensatedSum(values: readonly number[]): number {
  let [total, lost] = [0, 0];
  for (const value of values) {
    const next = total + value;
    lost += Math.abs(total) >= Math.abs(value) ? total - next + value : value - next + total;
    total = next;
  }
  return total + lost;
}

function variance(values: readonly number[]): number {
  const average = mean(values);
  return mean(values.map((value) => (value - average) ** 2));
}

function least(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((a, b) => Math.min(a, b));
}

function most(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((a, b) => Math.max(a, b));
}
