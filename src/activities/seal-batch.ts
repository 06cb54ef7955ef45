// sealBatch (R10): the batch is a function of the plan and of what the store holds, read back from there.
import { buildBatch } from './build-batch.js';
import type { SealedBatch, StepReference } from './contracts.js';
import type { NodeDeps } from './node-deps.js';
import { requireEpisode } from './rollouts.js';
import { currentScope } from './scope.js';
import { stoppingPoint } from './stopping-point.js';
import type { BatchIdentity, Digest, EpisodeRecord, GrpoPlan } from '../spec/records.js';
import { readBatchIdentity } from '../store/batch-file.js';
import { sha256Hex } from '../store/canonical.js';
import { inParallel } from '../store/in-parallel.js';
import { batchKey, episodeKey } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { createFile } from '../store/records.js';
import { checkOwner, readPlan } from '../store/run-records.js';
import { UnreadableRecord } from '../store/store-errors.js';

export async function sealBatch(
  deps: Pick<NodeDeps, 'store' | 'runs'>,
  input: StepReference & { plan: Digest },
): Promise<SealedBatch> {
  const { store } = deps;
  const { run, step } = input;
  await checkOwner(store, run, input.owner);
  const key = batchKey(run, step);
  const sealed = await store.get(key);
  if (sealed) return answer(sha256Hex(sealed), sealed.length, identityFor(input, sealed, key));
  const { record: plan } = await readPlan(store, run, step, input.plan);
  const { bytes, identity } = await buildBatch(plan, {
    episodes: plan.kind === 'grpo' ? await readEpisodes(store, plan, input.plan) : [],
    data: () => deps.runs.get(run),
  });
  await stoppingPoint('batch-built');
  currentScope().signal.throwIfAborted();
  const { sha256, size } = await createFile(store, key, bytes);
  await stoppingPoint('batch-written');
  return answer(sha256, size, identity);
}

/** A stored batch's identity. Throws `UnreadableRecord` where it was sealed for another plan or step. */
export function identityFor(
  { run, step, plan }: { run: string; step: number; plan: Digest },
  bytes: Uint8Array,
  key: string,
): BatchIdentity {
  const identity = readBatchIdentity(bytes, key);
  if (identity.plan !== plan || identity.step !== step || identity.run !== run) {
    throw new UnreadableRecord(
      key,
      `it was sealed for step ${identity.step} of ${identity.run} and plan ${identity.plan}, not for plan ${plan}`,
    );
  }
  return identity;
}

/** By slot and sample. Throws `UnreadableRecord` where one is missing or another plan's: the batch waits for every outcome. */
async function readEpisodes(
  store: ObjectStore,
  { run, step, slots, samples_per_slot, previous_state: state }: GrpoPlan,
  plan: Digest,
): Promise<EpisodeRecord[][]> {
  const seats = slots.flatMap(({ slot }) =>
    Array.from({ length: samples_per_slot }, (_, sample) => episodeKey(run, step, slot, sample)),
  );
  const episodes = await inParallel(seats, (key) => requireEpisode(store, key, { plan, state }));
  return slots.map((_, index) => episodes.slice(index * samples_per_slot, (index + 1) * samples_per_slot));
}

function answer(batch: Digest, size: number, identity: BatchIdentity): SealedBatch {
  return { batch, size, loss_tokens: identity.loss_tokens.reduce((sum, tokens) => sum + tokens, 0) };
}
