// Figures of a step's rewards and episodes, under SkyRL's names.
import type { EpisodeRecord } from '../spec/records.js';

/** Graded values of one prompt's samples; null for unknown. */
export interface RewardGroup {
  env: string;
  values: readonly (number | null)[];
}

export interface RewardFigures {
  /** Share of prompts with any reward above 0. */
  pass_at_n: number;
  /** Mean over prompts with ≥ 2 graded samples of the population variance. */
  variance_per_prompt: number;
  /** Share of those prompts whose variance is above 0: the ones that GRPO learns from. */
  signal_ratio: number;
  /** Mean of the rewards above 0; 0 when there is none. */
  mean_positive_reward: number;
}

export function rewardFigures(groups: readonly RewardGroup[]): RewardFigures {
  const graded = groups
    .map(({ values }) => values.filter((value) => value !== null))
    .filter((values) => values.length > 0);
  const variances = graded.filter((values) => values.length > 1).map(variance);
  return {
    pass_at_n: share(graded, (values) => values.some((value) => value > 0)),
    variance_per_prompt: mean(variances),
    signal_ratio: share(variances, (value) => value > 0),
    mean_positive_reward: mean(graded.flatMap((values) => values.filter((value) => value > 0))),
  };
}

/** `reward/{env}/…` for each environment, and the averages over all prompts. */
export function rewardMetrics(groups: readonly RewardGroup[]): Record<string, number> {
  const metrics: Record<string, number> = {};
  for (const env of environmentsOf(groups.map((group) => group.env))) {
    const figures = rewardFigures(groups.filter((group) => group.env === env));
    for (const [name, value] of Object.entries<number>({ ...figures }))
      metrics[`reward/${env}/${name}`] = value;
  }
  const all = rewardFigures(groups);
  const values = groups.flatMap((group) => group.values).filter((value) => value !== null);
  metrics['reward/avg_pass_at_n'] = all.pass_at_n;
  metrics['reward/avg_raw_reward'] = mean(values);
  // SkyRL's second definition of this name: negative rewards count as 0, and all samples divide.
  metrics['reward/mean_positive_reward'] = mean(values.map((value) => Math.max(value, 0)));
  metrics['reward/variance_per_prompt'] = all.variance_per_prompt;
  metrics['reward/signal_ratio'] = all.signal_ratio;
  metrics['reward/unknown'] = groups
    .flatMap((group) => group.values)
    .filter((value) => value === null).length;
  return metrics;
}

type EpisodeFigures = Pick<EpisodeRecord, 'env_key' | 'metrics' | 'logprobs' | 'outcome'>;

/** `environment/…`, `environment/{env}/…` and `generate/…`. Tokens are sampled ones. */
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
  metrics['generate/avg_tokens_non_zero_rewards'] = mean(tokensWhere(true));
  metrics['generate/avg_tokens_zero_rewards'] = mean(tokensWhere(false));
  return metrics;
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

function share<T>(values: readonly T[], holds: (value: T) => boolean): number {
  return ratio(values.filter(holds).length, values.length);
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
