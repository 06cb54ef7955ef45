// An evaluation's episodes in the layout of SkyRL: `trajectories/evals/{run}/global_step_{n}/{env}.jsonl`. A projection: the records are
// the truth, and an existing folder is left as it is. The layout has one evaluation for each step: if a run has evaluated a step on both of
// its suites, the later one's files lie below the first one's, under its suite's name. Sweeps have any number of suites, and play several
// of one state at a time: each has a folder of its own there, by its content.
import type { RunData } from '../../data/run-data.js';
import type { EvaluationResult, SuiteRecord } from '../../spec/records/evaluation-records.js';
import type { PassRate } from '../../spec/pass-rate.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { isRunSuite } from '../../spec/schedule.js';
import { recordDigest } from '../../store/records/canonical.js';
import { trajectoryKey, trajectoryResultsKey } from '../../store/objects/layout.js';
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
    // Written last: a folder with results is whole.
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

/** False if another evaluation was first: all begin with the file of the data's first environment. */
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

/** The first free folder below the step's; undefined is the step's folder itself. */
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
  const { env_key, task_key, tokens, prompt_length, outcome, stop_reason } = episode;
  return {
    input_prompt: tokenizer.decode(tokens.slice(0, prompt_length)),
    output_response: tokenizer.decode(tokens.slice(prompt_length)),
    /** Null: unknown, which is not a score of the model. */
    score: outcome.status === 'graded' ? outcome.value : null,
    stop_reason,
    env_class: env_key,
    env_extras: { task_key, data_source: env_key, max_turns: suite.sampling.max_turns },
    data_source: env_key,
  };
}

/** Omits the pass rates of ungraded episodes. */
function aggregated(result: Omit<EvaluationResult, 'observed'>): Record<string, number> {
  const metrics: Record<string, number> = {};
  const add = (scope: string, rate: PassRate): void => {
    if (rate !== null) metrics[`eval/${scope}/pass_at_1`] = rate;
  };
  add('all', result.pass_at_1);
  metrics['eval/num_samples'] = result.graded;
  for (const [name, figures] of Object.entries(result.environments)) {
    add(name, figures.pass_at_1);
    metrics[`eval/${name}/unknown`] = figures.unknown;
  }
  return metrics;
}
