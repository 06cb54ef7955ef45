// The few figures of each episode that a comparison needs, so that transcripts need not stay in memory.
import type { Counted } from '../spec/pass-rate.js';
import type { SuiteRecord } from '../spec/records/evaluation-records.js';
import type { EpisodeRecord } from '../spec/records/episode.js';
import { isPass } from '../rl/episode-reward.js';

export interface PlayedSample {
  /** Null if the outcome is unknown. */
  reward: number | null;
  turns: number;
  tool_calls: number;
  tool_errors: number;
}

export interface TaskTally {
  task_key: string;
  env_key: string;
  template: string;
  /** One entry for each sample; null if it is not played. */
  samples: (PlayedSample | null)[];
}

export type EpisodeFigures = Pick<EpisodeRecord, 'slot' | 'sample' | 'task_key' | 'outcome' | 'metrics'>;

/** A tally without played samples: one entry for each task of the suite, in its order. */
export function emptyTally({ tasks, samples_per_task }: SuiteRecord): TaskTally[] {
  return tasks.map(({ task_key, env_key, template }) => ({
    task_key,
    env_key,
    template,
    samples: Array.from({ length: samples_per_task }, () => null),
  }));
}

/** Adds an episode; adding it twice changes nothing. Throws a RangeError if the suite has no such task or sample. */
export function addEpisode(tally: TaskTally[], episode: EpisodeFigures): void {
  const { slot, sample, task_key, outcome, metrics } = episode;
  const task = tally[slot];
  if (task === undefined || sample < 0 || sample >= task.samples.length || task.task_key !== task_key)
    throw new RangeError(`the suite has no sample ${sample} of ${task_key} in slot ${slot}`);
  const { turns, tool_calls, tool_errors } = metrics;
  const reward = outcome.status === 'graded' ? outcome.value : null;
  task.samples[sample] = { reward, turns, tool_calls, tool_errors };
}

export function playedSamples({ samples }: TaskTally): PlayedSample[] {
  return samples.filter((sample) => sample !== null);
}

/** Passed and graded samples; unknown outcomes are not counted. */
export function countedOf(task: TaskTally): Counted {
  const rewards = playedSamples(task).flatMap(({ reward }) => reward ?? []);
  return { passed: rewards.filter(isPass).length, graded: rewards.length };
}
