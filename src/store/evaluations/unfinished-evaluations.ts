// An evaluation of a run's newest state that has episodes but no result: either it is still running, or too few of its episodes were
// graded. Only its episodes show which of the two is true.
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { readEvaluationEpisodes } from '../runs/episodes.js';
import { inParallel } from '../../base/in-parallel.js';
import {
  attemptsFolder,
  evaluationResultKey,
  evaluationSuiteKey,
  parseEvaluationKey,
} from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord, requireRecord } from '../records/records.js';
import { lastCommittedStep } from '../runs/run-records.js';

export interface UnfinishedEvaluation {
  step: number;
  suite_name: string;
  episodes: EpisodeRecord[];
}

/** The evaluation that the run's newest evaluation attempt started; null if it has a result. Throws `UnreadableRecord`. */
export async function readUnfinishedEvaluation(
  store: ObjectStore,
  run: string,
): Promise<UnfinishedEvaluation | null> {
  const step = await lastCommittedStep(store, run);
  if (step < 0) return null;
  const keys: string[] = [];
  for await (const { key } of store.list(attemptsFolder(run, step)))
    if (/\/attempts\/evaluate-(interval|final)\b/.test(key)) keys.push(key);
  const attempts = await inParallel(keys, (key) => requireRecord(store, key, 'attempt'));
  const [newest] = attempts
    .filter(({ starts }) => starts.length > 0)
    .sort((a, b) => (a.observed.at < b.observed.at ? 1 : -1));
  const begun = parseEvaluationKey(newest?.starts[0] ?? '');
  if (begun === null) return null;
  const { state, suite } = begun;
  const [record, result] = await Promise.all([
    readRecord(store, evaluationSuiteKey(state, suite), 'suite'),
    store.head(evaluationResultKey(state, suite)),
  ]);
  if (record === null || result !== null) return null;
  const episodes = await readEvaluationEpisodes(store, { result: { state, suite } });
  return { step, suite_name: record.name, episodes };
}
