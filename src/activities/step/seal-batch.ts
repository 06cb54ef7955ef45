// Seals a step (R10): builds its batch from the plan and from the episodes as read back from the store, and stores it.
import { buildBatch } from './build-batch.js';
import { rebasedBatch } from './rebased-step.js';
import { type EpisodeTokens, tokensOf } from './update-figures.js';
import { readStepGroups, valueOf } from './step-groups.js';
import { nextWave, wavesOf } from './waves.js';
import { currentScope } from '../attempt/scope.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { RunData } from '../../data/run-data.js';
import type { BatchIdentity } from '../../spec/records/update.js';
import type { Digest } from '../../spec/records/parts.js';
import type { EpisodeRecord } from '../../spec/records/episode.js';
import type { GrpoPlan, PlanRecord } from '../../spec/records/plan.js';
import { batchDifference } from '../../store/files/batch-file.js';
import { recordDigest } from '../../store/records/canonical.js';
import { sha256Hex } from '../../base/sha256.js';
import { readWaves } from '../../store/runs/waves.js';
import { batchKey, waveKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { createFile } from '../../store/records/records.js';
import { Diverged, UnreadableRecord } from '../../store/record-errors.js';

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
export async function sealBatch(store: ObjectStore, plan: PlanRecord, data: RunData): Promise<SealedBatch> {
  const key = batchKey(plan.run, plan.step);
  const episodes = plan.kind === 'grpo' && !plan.rebased ? await episodesOf(store, plan, data) : [];
  const { bytes, identity } = plan.rebased
    ? await rebasedBatch(store, plan, plan.rebased)
    : await buildBatch(plan, { episodes, data: () => Promise.resolve(data) });
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
 * Reads the episodes of all slots, and checks that the step has exactly the waves that follow from them. Throws `UnreadableRecord`,
 * `Diverged`.
 */
async function episodesOf(store: ObjectStore, plan: GrpoPlan, data: RunData): Promise<EpisodeRecord[][]> {
  const waves = await readWaves(store, plan);
  const groups = await readStepGroups(store, plan, waves, (episode) => episode);
  if (!plan.dynamic_sampling) return groups;
  const outcomes = groups.map((episodes) => episodes.map(valueOf));
  const made = wavesOf(plan, outcomes, data);
  for (const [index, wave] of waves.entries()) {
    const key = waveKey(plan.run, plan.step, wave.wave);
    if (!made[index] || recordDigest(made[index]) !== recordDigest(wave))
      throw new UnreadableRecord(key, 'planning it again from the outcomes before it gives another wave');
  }
  if (nextWave(plan, waves, outcomes, data) !== null)
    throw new Error(`wave ${waves.length + 1} of step ${plan.step} of ${plan.run} was not played`);
  return groups;
}
