// What an update's record says of the requests to a Tinker server: all that this process has sent for the run and no record counts, and for
// episodes and batches at least what they show, since a process that has died may have sent it.
import { itemOf } from '../../engine/tinker/sent-tokens.js';
import { tokensToSend } from '../../engine/tinker/passes.js';
import type { UpdateResult } from '../../engine/policy-engine.js';
import { metricsOfServed } from '../../rl/spending.js';
import type { ServedTokens } from '../../spec/budget.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import { decodeBatchFile } from '../../store/files/batch-file.js';
import { batchKey } from '../../store/objects/layout.js';
import type { NodeDeps } from '../node-deps.js';
import { readBatch } from '../../store/runs/stored-batch.js';

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
  applied: UpdateResult['applied'];
}

/** Metrics of the update that is about to be committed at `at` (ISO 8601); none on a node with an engine of its own. */
export async function sentFigures(
  { store, sent }: Pick<NodeDeps, 'store' | 'sent'>,
  { run, step, episodes, applied }: ComputedStep,
  at: string,
): Promise<Record<string, number>> {
  if (!sent) return {};
  const recorded = new Map<string, Partial<ServedTokens>>(
    episodes.map(({ slot, sampleIndex, prefill, sample }) => [
      itemOf.episode(step, slot, sampleIndex),
      { prefill, sample },
    ]),
  );
  const update = itemOf.update(step);
  // The server had the state already: a process that has died sent the batch.
  if (applied === true && !sent.has(run, update)) {
    const bytes = await readBatch(store, run, step);
    if (bytes)
      recorded.set(update, { train: tokensToSend(decodeBatchFile(bytes, batchKey(run, step)).arrays) });
  }
  return metricsOfServed(sent.offer(run, at, recorded));
}
