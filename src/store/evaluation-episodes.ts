// The episodes of an evaluation.
import type { EvaluationResult } from '../spec/evaluation-records.js';
import type { EpisodeRecord } from '../spec/records.js';
import { inParallel } from './in-parallel.js';
import { evaluationEpisodesFolder } from './layout.js';
import type { ObjectStore } from './object-store.js';
import { readRecord } from './records.js';

/** In slot order. */
export async function readEvaluationEpisodes(
  store: ObjectStore,
  { result }: { result: Pick<EvaluationResult, 'state' | 'suite'> },
): Promise<EpisodeRecord[]> {
  const folder = evaluationEpisodesFolder(result.state, result.suite);
  const names = await store.listFolder(folder);
  const records = await inParallel(names, (name) => readRecord(store, `${folder}${name}`, 'episode'));
  return records.filter((episode) => episode !== null);
}
