// Writes an evaluation's episodes in SkyRL's layout: `trajectories/evals/{run}/global_step_{n}/{env}.jsonl`. The files are copies: the
// records are the truth, and an existing folder is not changed. The layout has room for one evaluation of each step. If a run has evaluated
// a step on both of its suites, the second one is written to a subfolder with its suite's name. A sweep may have several suites for one
// state, so each gets a subfolder named by a digest of the suite.
import type { RunData } from '../../data/run-data.js';
import type { EvaluationResult, SuiteRecord } from '../../spec/records/evaluation-records.js';
import { type PassRates, passRatesOf } from '../../spec/pass-rate.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { isRunSuite } from '../../spec/schedule.js';
import { recordDigest } from '../../store/records/canonical.js';
import { trajectoryKey, trajectoryResultsKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';

export async function projectTrajectories(
  store: ObjectStore,
  data: RunData,
  step: number,
  suite: SuiteRecord,
  episodes: readonly EpisodeRecord[],
  result: Omit<EvaluationResult, 'observed'>,
): Promise<void> {
  const { run } = data.record;
  const results = resultsOf(result);
  for (const folder of foldersOf(suite)) {
    const key = trajectoryResultsKey(run, step, folder);
    const there = await store.get(key);
    if (there === null && !(await writeLines(store, data, step, folder, suite, episodes))) continue;
    // The results file is written last, so a folder that has it is complete.
    if (there === null) await store.create(key, results);
    else if (!Buffer.from(there).equals(results)) continue;
    return;
  }
}

export async function isProjected(
  store: ObjectStore,
  { run, step }: { run: string; step: number },
  suite: SuiteRecord,
  result: Omit<EvaluationResult, 'observed'>,
): Promise<boolean> {
  const results = resultsOf(result);
  for (const folder of foldersOf(suite)) {
    const there = await store.get(trajectoryResultsKey(run, step, folder));
    if (there !== null && Buffer.from(there).equals(results)) return true;
  }
  return false;
}

function resultsOf(result: Omit<EvaluationResult, 'observed'>): Buffer {
  return Buffer.from(`${JSON.stringify(aggregated(result))}\n`);
}

/** False if another evaluation already uses the folder. All evaluations write the file of the data's first environment first. */
async function writeLines(
  store: ObjectStore,
  data: RunData,
  step: number,
  folder: string | undefined,
  suite: SuiteRecord,
  episodes: readonly EpisodeRecord[],
): Promise<boolean> {
  for (const [envKey, lines] of linesByEnvironment(data, suite, episodes)) {
    const key = trajectoryKey(data.record.run, step, envKey, folder);
    const bytes = Buffer.from(lines.join(''));
    if ((await store.create(key, bytes)) === 'created') continue;
    if (!bytes.equals((await store.get(key)) ?? Buffer.of())) return false;
  }
  return true;
}

/** Folders to try, in order, below the step's folder; undefined stands for the step's folder itself. */
function foldersOf(suite: SuiteRecord): (string | undefined)[] {
  if (isRunSuite(suite.name) && suite.again === undefined) return [undefined, suite.name];
  return [`${suite.name}-${recordDigest(suite).slice(0, 12)}`];
}

function linesByEnvironment(
  data: RunData,
  suite: SuiteRecord,
  episodes: readonly EpisodeRecord[],
): Map<string, string[]> {
  const byEnvironment = new Map<string, string[]>();
  const ordered = [...episodes].sort((a, b) => a.slot - b.slot || a.sample - b.sample);
  for (const episode of ordered) {
    const lines = byEnvironment.get(episode.env_key) ?? [];
    lines.push(`${JSON.stringify(trajectoryOf(data, suite, episode))}\n`);
    byEnvironment.set(episode.env_key, lines);
  }
  return byEnvironment;
}

function trajectoryOf({ tokenizer }: RunData, suite: SuiteRecord, episode: EpisodeRecord) {
  const { env_key, task_key, tokens, prompt_length, stop_reason } = episode;
  return {
    input_prompt: tokenizer.decode(tokens.slice(0, prompt_length)),
    output_response: tokenizer.decode(tokens.slice(prompt_length)),
    score: scoreOf(episode),
    stop_reason,
    env_class: env_key,
    env_extras: { task_key, data_source: env_key, max_turns: suite.sampling.max_turns },
    data_source: env_key,
  };
}

/**
 * One score for each token of the response: the reward at the last sampled token, 0 at all others. Null for an unknown outcome, which says
 * nothing about the model; a list of zeros would count as its failure.
 */
function scoreOf({ tokens, prompt_length, turns, outcome }: EpisodeRecord): number[] | null {
  if (outcome.status === 'unknown') return null;
  const scores = new Array<number>(tokens.length - prompt_length).fill(0);
  const last = turns.findLast(({ start, end }) => end > start)?.end ?? tokens.length;
  // A graded episode without a token still has its reward.
  scores[Math.max(0, last - prompt_length - 1)] = outcome.value;
  return scores;
}

/** An environment without graded episodes gets no pass rates. */
function aggregated(result: Omit<EvaluationResult, 'observed'>): Record<string, number> {
  const metrics: Record<string, number> = {};
  const add = (scope: string, figures: PassRates): void => {
    for (const [name, rate] of Object.entries(passRatesOf(figures))) metrics[`eval/${scope}/${name}`] = rate;
  };
  add('all', result);
  metrics['eval/num_samples'] = result.graded;
  for (const [name, figures] of Object.entries(result.environments)) {
    add(name, figures);
    metrics[`eval/${name}/unknown`] = figures.unknown;
  }
  return metrics;
}
