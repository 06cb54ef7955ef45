// Reads the episodes of a step back from the store (R10): all of its plan's slots and of its waves.
import { requireEpisode } from './episode-record.js';
import { inParallel } from '../../base/in-parallel.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { GrpoPlan } from '../../spec/records/plan.js';
import { slotsWith, type WaveRecord } from '../../spec/records/wave.js';
import { episodeKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { UnreadableRecord } from '../../store/record-errors.js';
import { recordDigest } from '../../store/records/canonical.js';
import { withFoldedSteps } from '../../store/runs/episodes.js';

/**
 * Reads each episode and keeps only what `part` returns for it, by slot and sample. Throws `UnreadableRecord` if an episode is missing, or
 * belongs to another plan or task: the batch needs every outcome.
 */
export async function readStepGroups<T>(
  store: ObjectStore,
  plan: GrpoPlan,
  waves: readonly WaveRecord[],
  part: (episode: EpisodeRecord) => T,
): Promise<T[][]> {
  const { run, step, samples_per_slot, previous_state: state } = plan;
  const view = withFoldedSteps(store);
  const source = { plan: recordDigest(plan), state };
  const slots = slotsWith(plan, waves);
  const rollouts = slots.flatMap(({ slot, task_key }) =>
    Array.from({ length: samples_per_slot }, (_, sample) => ({
      task_key,
      key: episodeKey(run, step, slot, sample),
    })),
  );
  const parts = await inParallel(rollouts, async ({ key, task_key }) => {
    const episode = await requireEpisode(view, key, source);
    // The task of a wave's slot follows from earlier outcomes. If one of these was set aside and played again, the slot may have another task.
    if (episode.task_key !== task_key)
      throw new UnreadableRecord(key, `it was played for task ${episode.task_key}, not for ${task_key}`);
    return part(episode);
  });
  return slots.map((_, index) => parts.slice(index * samples_per_slot, (index + 1) * samples_per_slot));
}

export function valueOf({ outcome }: EpisodeRecord): number | null {
  return outcome.status === 'graded' ? outcome.value : null;
}
