// An evaluation's episodes in the layout that SkyRL's users read: `trajectories/evals/{run}/global_step_{n}/{env}.jsonl`.
// A projection: the records are the truth, and a folder that exists is left as it is. The layout knows one evaluation of a step:
// where a step has two, the later one's files lie below the first one's, under its suite's name.
import type { RunData } from './run-data.js';
import type { EvaluationResult, SuiteRecord } from '../spec/evaluation-records.js';
import type { EpisodeRecord } from '../spec/records.js';
import { trajectoryKey, trajectoryResultsKey } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';

export async function projectTrajectories(
  store: ObjectStore,
  data: RunData,
  step: number,
  suite: SuiteRecord,
  episodes: readonly EpisodeRecord[],
  result: Omit<EvaluationResult, 'observed'>,
): Promise<void> {
  const { run } = data.record;
  const results = Buffer.from(`${JSON.stringify(aggregated(result))}\n`);
  const first = await store.get(trajectoryResultsKey(run, step));
  if (first && Buffer.from(first).equals(results)) return;
  const suiteName = first ? suite.name : undefined;
  const byEnvironment = new Map<string, string[]>();
  const ordered = [...episodes].sort((a, b) => a.slot - b.slot || a.sample - b.sample);
  for (const episode of ordered) {
    const lines = byEnvironment.get(episode.env_key) ?? [];
    lines.push(`${JSON.stringify(trajectoryOf(data, suite, episode))}\n`);
    byEnvironment.set(episode.env_key, lines);
  }
  for (const [envKey, lines] of byEnvironment) {
    await store.create(trajectoryKey(run, step, envKey, suiteName), Buffer.from(lines.join('')));
  }
  await store.create(trajectoryResultsKey(run, step, suiteName), results);
}

function trajectoryOf({ tokenizer }: RunData, suite: SuiteRecord, episode: EpisodeRecord) {
  const { env_key, task_key, tokens, prompt_length, outcome, stop_reason } = episode;
  return {
    input_prompt: tokenizer.decode(tokens.slice(0, prompt_length)),
    output_response: tokenizer.decode(tokens.slice(prompt_length)),
    /** Null: unknown, which is no score of the model. */
    score: outcome.status === 'graded' ? outcome.value : null,
    stop_reason,
    env_class: env_key,
    env_extras: { task_key, data_source: env_key, max_turns: suite.sampling.max_turns },
    data_source: env_key,
  };
}

function aggregated(result: Omit<EvaluationResult, 'observed'>): Record<string, number> {
  const metrics: Record<string, number> = {
    'eval/all/pass_at_1': result.pass_at_1,
    'eval/num_samples': result.graded,
  };
  for (const [name, figures] of Object.entries(result.environments)) {
    metrics[`eval/${name}/pass_at_1`] = figures.pass_at_1;
    metrics[`eval/${name}/unknown`] = figures.unknown;
  }
  return metrics;
}
