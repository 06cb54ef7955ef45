// What a death cost, counted at the engine: turns that were asked for more than once, and tokens that are in no record.
import type { SamplingKey } from '../../src/engine/policy-engine.js';
import type { EpisodeRecord } from '../../src/spec/records.js';

/** A `generate` that an engine was asked for. */
export interface AskedTurn {
  key: SamplingKey;
  /** Length of the transcript before the turn. */
  at: number;
  /** Tokens of the answer; null where none came. */
  tokens: number | null;
}

export interface LostWork {
  episodes: number;
  /** Of them, those with a turn that was asked for again. */
  touched: number;
  /** Turns that were asked for again, and the most of one episode. */
  turns: number;
  mostOfOne: number;
  /** Answered, and in no record. */
  tokens: number;
}

const nameOf = ({ domain, step, slot, sample }: SamplingKey): string =>
  [domain, step, slot, sample].join('/');

/** `asked`: of all engines, in any order; `records`: of all episodes that they played. */
export function lostWork(asked: readonly AskedTurn[], records: readonly EpisodeRecord[]): LostWork {
  const turnsOf = new Map<string, Map<number, number>>();
  for (const { key, at } of asked) {
    const turns = turnsOf.get(nameOf(key)) ?? new Map<number, number>();
    turnsOf.set(nameOf(key), turns.set(at, (turns.get(at) ?? 0) + 1));
  }
  const again = [...turnsOf.values()].map((turns) =>
    [...turns.values()].reduce((sum, times) => sum + times - 1, 0),
  );
  const answered = asked.reduce((sum, { tokens }) => sum + (tokens ?? 0), 0);
  const recorded = records.reduce((sum, { logprobs }) => sum + logprobs.length, 0);
  return {
    episodes: turnsOf.size,
    touched: again.filter((turns) => turns > 0).length,
    turns: again.reduce((sum, turns) => sum + turns, 0),
    mostOfOne: Math.max(0, ...again),
    tokens: answered - recorded,
  };
}

export function describeLostWork(
  what: string,
  { episodes, touched, turns, mostOfOne, tokens }: LostWork,
): string {
  return (
    `${what}: ${turns} turns sampled again in ${touched} of ${episodes} episodes, at most ${mostOfOne} of one; ` +
    `${tokens} tokens lost`
  );
}
