// Work that was computed again after a death, from the requests to the engines (preloads/engine-tap.mjs) and the time of the death.
import { readFileSync } from 'node:fs';
import { readFolded } from '../../src/store/runs/folded-episodes.js';
import { episodeKey, episodesFolder } from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';

/** One computation: a turn of an episode, or the update of a step. */
export type Computed = { at: number } & (
  | {
      verb: 'generate';
      /** Absent if all requests use the same state. */
      state?: string;
      domain: string;
      step: number;
      slot: number;
      sample: number;
      /** Length of the transcript before the turn. */
      tokens: number;
    }
  | { verb: 'update'; stepId: string }
);

export interface LostWork {
  /** The largest number of turns that were sampled again for one episode. */
  turns: number;
  /** Number of episodes with a turn that was sampled again. */
  episodes: number;
  /** Number of updates that were computed again: the interrupted update, and the updates that were replayed to restore its state. */
  updates: number;
  /** Number of the replayed updates: their steps were already committed. */
  replayed: number;
}

export interface Death {
  /** Time in ms. */
  at: number;
  /** Step ids of all steps that were committed before the death. */
  committed?: ReadonlySet<string>;
}

export function readComputed(path: string): Computed[] {
  const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1);
  return lines.map((line) => JSON.parse(line) as Computed).sort((a, b) => a.at - b.at);
}

/**
 * For each death: the work that was requested before it, and requested again after it but before the next death. `deaths` must be in order.
 */
export function lostWork(computed: readonly Computed[], deaths: readonly Death[]): LostWork[] {
  return deaths.map(({ at: death, committed = new Set<string>() }, index) => {
    const before = new Set(computed.filter(({ at }) => at <= death).map(nameOf));
    const until = deaths[index + 1]?.at ?? Infinity;
    const again = computed.filter((one) => one.at > death && one.at <= until && before.has(nameOf(one)));
    const turns = new Map<string, Set<string>>();
    for (const one of again) {
      if (one.verb !== 'generate') continue;
      const episode = episodeOf(one);
      turns.set(episode, (turns.get(episode) ?? new Set()).add(nameOf(one)));
    }
    const updates = [...new Set(again.flatMap((one) => (one.verb === 'update' ? [one.stepId] : [])))];
    return {
      turns: Math.max(0, ...[...turns.values()].map(({ size }) => size)),
      episodes: turns.size,
      updates: updates.length,
      replayed: updates.filter((id) => committed.has(id)).length,
    };
  });
}

/** When the store received the record of each episode of a committed step, in ms, by the episode's key. */
export async function recordedAt(
  store: ObjectStore,
  run: string,
  step: number,
): Promise<Map<string, number>> {
  const times = new Map<string, number>();
  for await (const { key, modified } of store.list(episodesFolder(run, step)))
    times.set(key, modified.getTime());
  for (const [key, episode] of (await readFolded(store, { run, step })) ?? [])
    times.set(key, episode.recordedAt.getTime());
  if (times.size === 0) throw new Error(`step ${step} of ${run} has no episodes`);
  return times;
}

/** Number of episodes that were sampled before a death and recorded after it. `recorded`: result of `recordedAt`. */
export function episodesInFlight(
  computed: readonly Computed[],
  death: number,
  run: string,
  recorded: ReadonlyMap<string, number>,
): number {
  const sampled = new Set(
    computed.flatMap((one) =>
      one.verb === 'generate' && one.domain === 'train' && one.at <= death
        ? [episodeKey(run, one.step, one.slot, one.sample)]
        : [],
    ),
  );
  return [...sampled].filter((key) => (recorded.get(key) ?? 0) > death).length;
}

/** Identifies a turn by its episode and the length of the transcript before it, because a transcript only grows. */
const nameOf = (one: Computed): string =>
  one.verb === 'generate' ? `${episodeOf(one)} ${one.tokens}` : one.stepId;

/** The state is part of the key, because evaluations play the same episodes with every state. */
const episodeOf = ({ state, domain, step, slot, sample }: Computed & { verb: 'generate' }): string =>
  `${state ?? ''} ${domain} ${step} ${slot} ${sample}`;
