// Overlong filtering: an episode that a limit of its tokens cut off carries no loss, because its grade says nothing about what was left out.
import type { EpisodeRecord } from './episode.js';
import type { GrpoPlan } from './plan.js';

/** Whether a plan leaves an episode out of the loss. Its value still counts in its group. */
export function isFiltered(
  { overlong_filtering, sampling }: Pick<GrpoPlan, 'overlong_filtering' | 'sampling'>,
  { stop_reason, turns }: Pick<EpisodeRecord, 'stop_reason' | 'turns'>,
): boolean {
  if (!overlong_filtering) return false;
  if (stop_reason !== 'max_turns') return stop_reason === 'length';
  const { start, end } = turns.at(-1) ?? { start: 0, end: 0 };
  return end - start >= sampling.max_generate_length || end >= sampling.max_sequence_length;
}
