// What an update's record says of the requests to a Tinker server: all that this process has sent for the run and no record counts, and for
// episodes at least what they show, since a process that has died may have sent it.
import { itemOf } from '../../engine/tinker/sent-tokens.js';
import { metricsOfServed } from '../../rl/spending.js';
import type { ServedTokens } from '../../spec/budget.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { NodeDeps } from '../node-deps.js';

/** What an episode's turns were sampled from, and what came back. */
export interface EpisodeTokens extends Pick<ServedTokens, 'prefill' | 'sample'> {
  slot: number;
  sampleIndex: number;
}

export function tokensOf({ slot, sample, turns }: EpisodeRecord): EpisodeTokens {
  return {
    ...{ slot, sampleIndex: sample },
    prefill: turns.reduce((sum, { start }) => sum + start, 0),
    sample: turns.reduce((sum, { start, end }) => sum + end - start, 0),
  };
}

interface ComputedStep {
  run: string;
  step: number;
  episodes: readonly EpisodeTokens[];
}

/** Metrics of the update that is about to be committed at `at` (ISO 8601); none on a node with an engine of its own. */
export function sentFigures(
  { sent }: Pick<NodeDeps, 'sent'>,
  { run, step, episodes }: ComputedStep,
  at: string,
): Record<string, number> {
  if (!sent) return {};
  const recorded = new Map<string, Partial<ServedTokens>>(
    episodes.map(({ slot, sampleIndex, prefill, sample }) => [
      itemOf.episode(step, slot, sampleIndex),
      { prefill, sample },
    ]),
  );
  return metricsOfServed(sent.offer(run, at, recorded));
}
