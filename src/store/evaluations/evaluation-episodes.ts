// Reads the episodes of an evaluation.
import type { EvaluationResult } from '../../spec/records/evaluation-records.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { evaluationEpisodesFolder } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readEpisodesIn } from '../runs/episodes.js';

/** Episodes of an evaluation in slot order. */
export async function readEvaluationEpisodes(
  store: ObjectStore,
  { result }: { result: Pick<EvaluationResult, 'state' | 'suite'> },
): Promise<EpisodeRecord[]> {
  return readEpisodesIn(store, evaluationEpisodesFolder(result.state, result.suite));
}
