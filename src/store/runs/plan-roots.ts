// A plan holds digests of the records it was made from: the run's record, the control records it folds, and the owner records up to its
// own. If one of these changed, the run would silently train with other settings, so every reader of a plan compares the digests.
import type { Digest } from '../../spec/records/parts.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import { inputsDigest } from '../files/batch-file.js';
import { sha256Hex } from '../../base/sha256.js';
import { readControl } from './control-records.js';
import { controlFolder, ownersFolder, planKey, runKey, sequenceKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { encodeRecord } from '../records/record-codec.js';
import type { RecordKind, RecordTypes } from '../../spec/records/record-kinds.js';
import { requireRecord } from '../records/records.js';
import { readPlan, readRun } from './run-records.js';
import { UnreadableRecord } from '../record-errors.js';

type PlanRoots = Pick<PlanRecord, 'run_digest' | 'control_digest' | 'owner_digest'>;
type Place = Pick<PlanRecord, 'run' | 'control' | 'owner'>;

// Records never change (R1), and every step reads the same ones, so these two caches keep them. A digest lives as long as its record. Owner
// records live as long as their store, which costs little: each claim of a run adds one small record.
const digests = new WeakMap<object, string>();
const ownersRead = new WeakMap<ObjectStore, Map<string, RecordTypes['owner']>>();

/** Digests of the records that a plan is made from, if `owner` makes it and folds the first `control` control records. */
export async function rootsOf(store: ObjectStore, { run, control, owner }: Place): Promise<PlanRoots> {
  const [record, asked, owners] = await Promise.all([
    readRun(store, run),
    readControl(store, run),
    Promise.all(Array.from({ length: owner }, (_, at) => readOwnerOnce(store, run, at + 1))),
  ]);
  if (asked.length < control)
    throw new UnreadableRecord(sequenceKey(controlFolder(run), asked.length + 1), 'it is missing');
  return {
    run_digest: await digestOf('run', record),
    control_digest: await digestOfAll('control', asked.slice(0, control)),
    owner_digest: await digestOfAll('owner', owners),
  };
}

/** Throws `UnreadableRecord` if a record has changed since the plan was made from it. */
export async function checkRoots(store: ObjectStore, plan: PlanRecord): Promise<void> {
  const roots = await rootsOf(store, plan);
  const changed = changedRoot(plan, roots);
  if (changed) throw new UnreadableRecord(changed.key, changed.problem);
}

/** `readPlan`, with the plan's roots checked. */
export async function readPlanOfStep(
  store: ObjectStore,
  place: { run: string; step: number; plan: Digest },
): Promise<PlanRecord> {
  const plan = await readPlan(store, place);
  await checkRoots(store, plan);
  return plan;
}

/** The first record that has changed since the plan was made from it; null if none has. */
export function changedRoot(plan: PlanRecord, roots: PlanRoots): { key: string; problem: string } | null {
  const { run, step, control, owner } = plan;
  const by = `when ${planKey(run, step)} was made`;
  const says = (key: string, what: string, then: string, now: string) =>
    then === now ? null : { key, problem: `it was changed: ${what} sha256 ${now}, but it was ${then} ${by}` };
  return (
    says(runKey(run), 'its bytes have the', plan.run_digest, roots.run_digest) ??
    says(
      controlFolder(run),
      `records 1 to ${control} together have the`,
      plan.control_digest,
      roots.control_digest,
    ) ??
    says(ownersFolder(run), `records 1 to ${owner} together have the`, plan.owner_digest, roots.owner_digest)
  );
}

async function readOwnerOnce(store: ObjectStore, run: string, n: number): Promise<RecordTypes['owner']> {
  const known = ownersRead.get(store) ?? new Map<string, RecordTypes['owner']>();
  ownersRead.set(store, known);
  const key = sequenceKey(ownersFolder(run), n);
  const record = known.get(key) ?? (await requireRecord(store, key, 'owner'));
  known.set(key, record);
  return record;
}

/** sha256 over the hex digests of the records' bytes, each followed by a line feed (like the `inputs` of a batch). */
async function digestOfAll<Kind extends RecordKind>(
  kind: Kind,
  records: readonly RecordTypes[Kind][],
): Promise<string> {
  return inputsDigest(await Promise.all(records.map((record) => digestOf(kind, record))));
}

/** sha256 of a record's stored bytes, `observed` included. */
async function digestOf<Kind extends RecordKind>(kind: Kind, record: RecordTypes[Kind]): Promise<string> {
  const digest = digests.get(record) ?? sha256Hex(await encodeRecord(kind, record));
  digests.set(record, digest);
  return digest;
}
