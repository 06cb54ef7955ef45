// A rebased step applies a logged batch again with other numerics (R18). Plan and batch are copied from the step that sampled the batch,
// with new states in their identities. Nothing is sampled; only the arithmetic differs.
import type { BatchIdentity } from '../../spec/records/update.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import { decodeBatchFile, encodeBatchFile } from '../../store/files/batch-file.js';
import { recordDigest } from '../../store/records/canonical.js';
import { batchKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readPlan, readUpdate } from '../../store/runs/run-records.js';
import { UnreadableRecord } from '../../store/record-errors.js';
import { readBatch } from '../../store/runs/stored-batch.js';

/**
 * The plan of `parent`'s step, with that step named as its source. Run, state, numerics, control and owner are still the parent's; the
 * caller replaces them.
 */
export async function rebasedPlan(store: ObjectStore, parent: string, step: number): Promise<PlanRecord> {
  const { identity } = await readUpdate(store, parent, step);
  return { ...(await readPlan(store, identity)), rebased: { run: identity.run, plan: identity.plan } };
}

/**
 * The batch that `plan.rebased` names, with `plan` in its identity. Throws `UnreadableRecord` if the batch is missing, broken, or made from
 * another plan.
 */
export async function rebasedBatch(
  store: ObjectStore,
  plan: PlanRecord,
  rebased: NonNullable<PlanRecord['rebased']>,
): Promise<{ bytes: Uint8Array; identity: BatchIdentity }> {
  const key = batchKey(rebased.run, plan.step);
  const bytes = await readBatch(store, rebased.run, plan.step);
  if (!bytes) throw new UnreadableRecord(key, 'it is not in the store, but a rebase must apply it again');
  const source = decodeBatchFile(bytes, key);
  if (source.identity.plan !== rebased.plan)
    throw new UnreadableRecord(
      key,
      `it was sealed from plan ${source.identity.plan}, not from ${rebased.plan}`,
    );
  const { run, previous_state } = plan;
  const identity = { ...source.identity, run, previous_state, plan: recordDigest(plan) };
  return { bytes: encodeBatchFile(source.arrays, identity), identity };
}
