// What was computed again after a death, from what the engines were asked for (test/support/engine-tap.mjs) and when it died.
import { readFileSync } from 'node:fs';

/** A turn of an episode, or an update of a step. */
export type Computed = { at: number } & (
  | {
      verb: 'generate';
      /** Absent where all that was asked for was of one state. */
      state?: string;
      domain: string;
      step: number;
      slot: number;
      sample: number;
      /** That the turn follows. */
      tokens: number;
    }
  | { verb: 'update'; stepId: string }
);

export interface LostWork {
  /** Most turns of one episode that were sampled again. */
  turns: number;
  /** Episodes of which a turn was sampled again. */
  episodes: number;
  /** Updates that were computed again. */
  updates: number;
}

export function readComputed(path: string): Computed[] {
  const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1);
  return lines.map((line) => JSON.parse(line) as Computed).sort((a, b) => a.at - b.at);
}

/** For each death, what was asked for before it and asked for again after it, until the next. Times in ms, in order. */
export function lostWork(computed: readonly Computed[], deaths: readonly number[]): LostWork[] {
  return deaths.map((death, index) => {
    const before = new Set(computed.filter(({ at }) => at <= death).map(nameOf));
    const until = deaths[index + 1] ?? Infinity;
    const again = computed.filter((one) => one.at > death && one.at <= until && before.has(nameOf(one)));
    const turns = new Map<string, Set<string>>();
    for (const one of again) {
      if (one.verb !== 'generate') continue;
      const episode = episodeOf(one);
      turns.set(episode, (turns.get(episode) ?? new Set()).add(nameOf(one)));
    }
    return {
      turns: Math.max(0, ...[...turns.values()].map(({ size }) => size)),
      episodes: turns.size,
      updates: new Set(again.filter(({ verb }) => verb === 'update').map(nameOf)).size,
    };
  });
}

/** A turn is known by its episode and by what it follows: a transcript only grows. */
const nameOf = (one: Computed): string =>
  one.verb === 'generate' ? `${episodeOf(one)} ${one.tokens}` : one.stepId;

/** An evaluation asks every state for the same episodes. */
const episodeOf = ({ state, domain, step, slot, sample }: Computed & { verb: 'generate' }): string =>
  `${state ?? ''} ${domain} ${step} ${slot} ${sample}`;
