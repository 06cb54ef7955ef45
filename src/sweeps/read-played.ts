// A state's episodes on a suite, from the store. Of each only its figures are kept, so that a sweep's memory does not grow with transcripts.
import type { EpisodeRecord } from '../spec/records.js';
import { inParallel } from '../store/in-parallel.js';
import { evaluationEpisodeKey } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { readRecord } from '../store/records.js';
import { UnreadableRecord } from '../store/store-errors.js';
import type { PlayedState } from './comparison.js';
import type { SelectedCheckpoint } from './checkpoint-selection.js';
import type { SweepSuite } from './suite-tasks.js';
import { addEpisode, emptyTally } from './tallies.js';

/** What is not played yet stays so in the answer. Throws `UnreadableRecord` on an episode that cannot be read, or is of something else. */
export async function readPlayed(
  store: ObjectStore,
  { record, digest }: SweepSuite,
  { run, step, state }: Pick<SelectedCheckpoint, 'run' | 'step' | 'state'>,
): Promise<PlayedState> {
  const tasks = emptyTally(record);
  const seats = tasks.flatMap(({ samples }, slot) => samples.map((_, sample) => ({ slot, sample })));
  await inParallel(seats, async ({ slot, sample }) => {
    const key = evaluationEpisodeKey(state, digest, slot, sample);
    const episode = await readRecord(store, key, 'episode');
    if (episode === null) return;
    const problem = misplaced(episode, { plan: digest, state, slot, sample });
    if (problem !== null) throw new UnreadableRecord(key, problem);
    addEpisode(tasks, episode);
  });
  return { run, step, state, tasks };
}

function misplaced(
  episode: EpisodeRecord,
  place: Pick<EpisodeRecord, 'plan' | 'state' | 'slot' | 'sample'>,
): string | null {
  if (episode.plan !== place.plan) return `it says that it is of suite ${episode.plan}`;
  if (episode.state !== place.state) return `it says that it was sampled at state ${episode.state}`;
  if (episode.slot !== place.slot || episode.sample !== place.sample)
    return `it says slot ${episode.slot}, sample ${episode.sample}`;
  return null;
}
