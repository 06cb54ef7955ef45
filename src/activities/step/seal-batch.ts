// Seals a step (R10): builds its batch from the plan and from the episodes as read back from the store, and stores it.
import { buildBatch } from './build-batch.js';
import type { StepReference } from '../contracts.js';
import type { NodeDeps } from '../node-deps.js';
import { rebasedBatch } from './rebased-step.js';
import { requireEpisode } from './episode-record.js';
import { type EpisodeTokens, tokensOf } from './sent-figures.js';
import { currentScope } from '../attempt/scope.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { BatchIdentity } from '../../spec/records/update.js';
import type { Digest } from '../../spec/records/parts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { GrpoPlan, PlanRecord } from '../../spec/records/plan.js';
import { batchDifference } from '../../store/files/batch-file.js';
import { recordDigest } from '../../store/records/canonical.js';
import { inParallel } from '../../base/in-parallel.js';
import { sha256Hex } from '../../base/sha256.js';
import { withFoldedSteps } from '../../store/runs/episodes.js';
import { batchKey, episodeKey } from '../../store/objects/layout.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { createFile } from '../../store/records/records.js';
import { Diverged } from '../../store/objects/store-errors.js';

/** The stored batch of a planned step. */
export interface SealedBatch {
  batch: Digest;
  identity: BatchIdentity;
  /** True if another attempt stored the batch. */
  adopted: boolean;
  /** Those that the step has sampled itself. */
  episodes: EpisodeTokens[];
}

/**
 * Builds the step's batch and stores it. Throws `UnreadableRecord` if an episode is missing or belongs to another plan, or if the stored
 * batch is broken; `Diverged` if the stored batch differs from the computed one.
 */
export async function sealBatch(
  deps: Pick<NodeDeps, 'store' | 'runs'>,
  { run, step }: StepReference,
  plan: PlanRecord,
): Promise<SealedBatch> {
  const { store } = deps;
  const key = batchKey(run, step);
  const episodes = plan.kind === 'grpo' && !plan.rebased ? await readEpisodes(store, plan) : [];
  const { bytes, identity } = plan.rebased
    ? await rebasedBatch(store, plan, plan.rebased)
    : await buildBatch(plan, { episodes, data: () => deps.runs.get(run) });
  await stoppingPoint('batch-built');
  currentScope().signal.throwIfAborted();
  const { sha256, adopted } = await createFile(store, key, bytes).catch(async (error: unknown) => {
    const stored = error instanceof Diverged ? await store.get(key) : null;
    throw stored ? otherBatch(stored, bytes, key) : error;
  });
  await stoppingPoint('batch-written');
  return { batch: sha256, identity, adopted, episodes: episodes.flat().map(tokensOf) };
}

/** The error that says where stored and computed batch differ. Throws `UnreadableRecord` if the stored batch is broken. */
function otherBatch(stored: Uint8Array, computed: Uint8Array, key: string): Diverged {
  return new Diverged(
    `${key} is not the batch of its plan and episodes: ${batchDifference(stored, computed, key)}. ` +
      `To seal the step again: longhaul quarantine ${key}`,
    { key, stored: sha256Hex(stored), computed: sha256Hex(computed) },
  );
}

/**
 * Reads the episodes by slot and sample. Throws `UnreadableRecord` if an episode is missing or belongs to another plan: the batch needs
 * every outcome.
 */
async function readEpisodes(store: ObjectStore, plan: GrpoPlan): Promise<EpisodeRecord[][]> {
  const { run, step, slots, samples_per_slot, previous_state: state } = plan;
  const view = withFoldedSteps(store);
  const source = { plan: recordDigest(plan), state };
  const seats = slots.flatMap(({ slot }) =>
    Array.from({ length: samples_per_slot }, (_, sample) => episodeKey(run, step, slot, sample)),
  );
  const episodes = await inParallel(seats, (key) => requireEpisode(view, key, source));
  return slots.map((_, index) => episodes.slice(index * samples_per_slot, (index + 1) * samples_per_slot));
}
