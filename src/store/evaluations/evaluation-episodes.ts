// The episodes of an evaluation.
import type { EvaluationResult } from '../../spec/records/evaluation-records.js';
import type { EpisodeRecord } from '../../spec/records/records.js';
import { inParallel } from '../../base/in-parallel.js';
import { evaluationEpisodesFolder } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord } from '../records/records.js';

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
