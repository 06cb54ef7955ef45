// The records of an invented run on a Tinker server, with one step that has importance weights (`use_tis`).
import { packForest } from '../../src/rl/packing.js';
import { sha256Hex } from '../../src/base/sha256.js';
import type { PlanRecord } from '../../src/spec/records/plan.js';
import type { UpdateRecord } from '../../src/spec/records/update.js';
import type { RunRecord } from '../../src/spec/records/run-records.js';
import { encodeBatchFile } from '../../src/store/files/batch-file.js';
import { batchKey, planKey, rescoredKey, runKey, updateKey } from '../../src/store/record-keys.js';
import type { ObjectStore } from '../../src/store/objects/object-store.js';
import { recordDigest, stepIdOf } from '../../src/store/records/canonical.js';
import { encodeRecord } from '../../src/store/records/record-codec.js';
import { nameOfBase, nameOfState } from '../../src/store/records/served-names.js';
import { chooseRescored, type Rescored } from '../../src/store/runs/rescored-logprobs.js';
import { recordsOfAllKinds } from './fixtures.js';

export const run = 'served';
export const step = 1;
export const policy = { service: 'test', model: 'small' };
export const trainerLogprobs = Float32Array.from([-0.5, -1.25, -2]);
const kinds = recordsOfAllKinds();
const numerics = { backend: 'tinker' as const, version: 1, ...policy };
const seed = 7;

const runRecord: RunRecord = {
  ...kinds.run,
  ...{ run, name: run, seed },
  spec: {
    ...kinds.run.spec,
    ...{ seed, warm_start: [] },
    generator: { max_wait_s: 1 },
    trainer: { save_every: 1, max_training_steps: 1 },
    model: {
      name: 'small',
      served: {
        ...{ name: policy.model, rank: 8, reduction: 'sum', numbered: true, clips: false },
        ...{ chunk_sequences: 8, chunk_tokens: 1000, logprob_tolerance: 10 },
      },
    },
  } as unknown as RunRecord['spec'],
};

export const previousState = nameOfBase({ ...policy, rank: 8, seed });

export const plan = {
  ...kinds.plan,
  ...{ run, step, numerics, previous_state: previousState },
  loss: { ...kinds.plan.loss, tis_cap: 2 },
} as PlanRecord;

const arrays = packForest([
  [
    {
      tokens: [5, 6, 7, 8],
      targets: [1, 2, 3].map((index) => ({ index, advantage: 1, oldLogprob: -1 })),
    },
  ],
]);
const batchBytes = encodeBatchFile(arrays, {
  ...kinds.batch,
  ...{ run, step, plan: recordDigest(plan), previous_state: previousState },
});
export const batch = sha256Hex(batchBytes);
export const stepId = stepIdOf(previousState, batch, recordDigest(plan));
export const state = nameOfState(previousState, stepId);
export const key = rescoredKey(run, step, batch);
export const place = { run, step, batch };

/** Writes the run up to the sealed batch of its step. */
export async function makeSealed(store: ObjectStore): Promise<void> {
  const identity = { ...kinds.base.identity, run, state: previousState, numerics };
  await store.create(runKey(run), await encodeRecord('run', runRecord));
  await store.create(updateKey(run, 0), await encodeRecord('base', { ...kinds.base, identity }));
  await store.create(planKey(run, step), await encodeRecord('plan', plan));
  await store.create(batchKey(run, step), batchBytes);
}

/** The update's record, which names the rescored log-probs. */
export function updateOf(rescored: string): UpdateRecord {
  const identity = {
    ...kinds.update.identity,
    ...{ run, step, plan: recordDigest(plan), batch, previous_state: previousState, state },
    ...{ step_id: stepId, numerics, rescored },
  };
  return { ...kinds.update, identity };
}

/** Writes the run with its step committed. */
export async function makeCommitted(store: ObjectStore): Promise<Rescored> {
  await makeSealed(store);
  const rescored = await chooseRescored(store, place, trainerLogprobs);
  await store.create(updateKey(run, step), await encodeRecord('update', updateOf(rescored.sha256)));
  return rescored;
}

/** Replaces the bytes of an object, as a broken disk does. */
export async function replace(
  store: ObjectStore,
  at: string,
  change: (bytes: Buffer) => Uint8Array,
): Promise<void> {
  const bytes = change(Buffer.from((await store.get(at))!));
  await store.delete(at);
  await store.create(at, bytes);
}

/** Flips a bit; without `bit`, the lowest one of the last byte, which belongs to a log-prob. */
export const flipped =
  (bit?: number) =>
  (bytes: Buffer): Buffer => {
    const at = bit ?? 8 * (bytes.length - 1);
    bytes[at >> 3]! ^= 1 << (at & 7);
    return bytes;
  };
