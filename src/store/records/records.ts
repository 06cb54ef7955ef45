// Reading and writing records by the rule of their kind (R2): choices are adopted, functions compared, sequences continued. None is ever
// overwritten, so it does not matter which process writes, how often, or how late.
import type { Digest } from '../../spec/records/parts.js';
import { canonicalBytes, canonicalText, differences } from './canonical.js';
import { sha256Hex } from '../../base/sha256.js';
import { inParallel } from '../../base/in-parallel.js';
import { sequenceKey } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { decodeRecord, encodeRecord } from './record-codec.js';
import type { RecordKind, RecordTypes } from '../../spec/records/record-kinds.js';
import { Diverged, isUnreadable, StoreUnavailable, UnreadableRecord } from '../objects/store-errors.js';

export interface StoredRecord<Kind extends RecordKind> {
  /** As stored, which is what every process goes on with. */
  record: RecordTypes[Kind];
  /** True if another's record was there first. */
  adopted: boolean;
}

/** Null if the record does not exist. Throws `UnreadableRecord`, `OlderSchema` or `NewerSchema`. */
export async function readRecord<Kind extends RecordKind>(
  store: ObjectStore,
  key: string,
  kind: Kind,
): Promise<RecordTypes[Kind] | null> {
  const bytes = await store.get(key);
  return bytes === null ? null : decodeRecord(key, kind, bytes);
}

/** Like `readRecord`, for a record that must be there. */
export async function requireRecord<Kind extends RecordKind>(
  store: ObjectStore,
  key: string,
  kind: Kind,
): Promise<RecordTypes[Kind]> {
  const record = await readRecord(store, key, kind);
  if (record === null)
    throw new UnreadableRecord(key, 'it is not in the store, but other records say that it must be');
  return record;
}

/** Null also if it cannot be read: reports about other records go on without it. */
export async function readIfWhole<Kind extends RecordKind>(
  store: ObjectStore,
  key: string,
  kind: Kind,
): Promise<RecordTypes[Kind] | null> {
  try {
    return await readRecord(store, key, kind);
  } catch (error) {
    if (isUnreadable(error)) return null;
    throw error;
  }
}

/** For choices (run, plan, episode, suite, evaluation, name of a run): the first record wins, and every process adopts it. */
export async function adoptOrCreate<Kind extends RecordKind>(
  store: ObjectStore,
  key: string,
  kind: Kind,
  record: RecordTypes[Kind],
): Promise<StoredRecord<Kind>> {
  const answer = await store.create(key, await encodeRecord(kind, record));
  if (answer === 'created') return { record, adopted: false };
  return { record: await readWritten(store, key, kind), adopted: true };
}

/**
 * For functions of earlier records (base, update, dataset and checkpoint manifests): the stored record must have the
 * same identity, else `Diverged` with both. Identity is the member `identity`, or everything but `observed`.
 */
export async function recordFunction<Kind extends RecordKind>(
  store: ObjectStore,
  key: string,
  kind: Kind,
  record: RecordTypes[Kind],
): Promise<StoredRecord<Kind>> {
  const result = await adoptOrCreate(store, key, kind, record);
  if (result.adopted) {
    const [stored, computed] = [identityOf(result.record), identityOf(record)];
    if (canonicalText(stored) !== canonicalText(computed)) {
      throw diverged(key, stored, computed, differences(stored, computed));
    }
  }
  return result;
}

/** For files that are functions (batch, dataset files, assets): the stored bytes must be the same, else `Diverged`. */
export async function createFile(
  store: ObjectStore,
  key: string,
  bytes: Uint8Array,
): Promise<{ sha256: Digest; size: number; adopted: boolean }> {
  const sha256 = sha256Hex(bytes);
  const answer = await store.create(key, bytes);
  if (answer === 'exists') {
    const stored = await store.get(key);
    if (stored === null) throw vanished(key);
    const other = sha256Hex(stored);
    if (other !== sha256) {
      throw diverged(key, { sha256: other, size: stored.length }, { sha256, size: bytes.length }, [
        `its bytes (stored sha256 ${other}, computed ${sha256})`,
      ]);
    }
  }
  return { sha256, size: bytes.length, adopted: answer === 'exists' };
}

/**
 * For sequences (owners, control, names, attempts): writes `{folder}{n}.json` at the first free n ≥ 1. If another author's record takes n,
 * `make` is called again for the next one, with all records stored by then. `make` may return one of `existing` if nothing is left to
 * write, or throw to refuse. `known`: the sequence's first records, if the caller has just read them.
 */
export async function appendSequence<Kind extends SequenceKind>(
  store: ObjectStore,
  folder: string,
  kind: Kind,
  make: (n: number, existing: readonly RecordTypes[Kind][]) => RecordTypes[Kind] | Promise<RecordTypes[Kind]>,
  known?: readonly RecordTypes[Kind][],
): Promise<RecordTypes[Kind]> {
  const existing = [...(known ?? (await readSequence(store, folder, kind)))];
  for (;;) {
    const n = existing.length + 1;
    const record = await make(n, existing);
    if (existing.includes(record)) return record;
    if (record.n !== n) throw new TypeError(`record ${n} of ${folder} says n = ${record.n}`);
    const key = sequenceKey(folder, n);
    if ((await store.create(key, await encodeRecord(kind, record))) === 'created') return record;
    const stored = await readWritten(store, key, kind);
    // A lost reply: the record at n is this very one, including its clocks.
    if (sameBytes(stored, record)) return stored;
    existing.push(stored);
  }
}

export type SequenceKind = 'owner' | 'control' | 'name' | 'attempt' | 'gc' | 'notice' | 'instance' | 'saved';

/** All records of a sequence, in order: n = 1, 2, … without a gap. `known`, its first ones, are not read again. */
export async function readSequence<Kind extends SequenceKind>(
  store: ObjectStore,
  folder: string,
  kind: Kind,
  known: readonly RecordTypes[Kind][] = [],
): Promise<RecordTypes[Kind][]> {
  const numbers = await sequenceNumbers(store, folder);
  const records = await inParallel(
    numbers,
    async (n) => known[n - 1] ?? requireRecord(store, sequenceKey(folder, n), kind),
  );
  for (const [i, record] of records.entries()) {
    const key = sequenceKey(folder, i + 1);
    if (numbers[i] !== i + 1) throw new UnreadableRecord(key, `it is missing, but ${numbers[i]}.json exists`);
    if (record.n !== i + 1) throw new UnreadableRecord(key, `it says n = ${record.n}`);
  }
  return records;
}

/** Numbers that a sequence's folder holds, ascending. */
export async function sequenceNumbers(store: ObjectStore, folder: string): Promise<number[]> {
  return (await store.listFolder(folder))
    .flatMap((name) => /^([1-9][0-9]*)\.json$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);
}

/** What is compared when two authors wrote the same function. */
function identityOf(record: object): object {
  const { observed: _, ...rest } = record as { observed?: unknown; identity?: object };
  return rest.identity ?? rest;
}

async function readWritten<Kind extends RecordKind>(
  store: ObjectStore,
  key: string,
  kind: Kind,
): Promise<RecordTypes[Kind]> {
  const record = await readRecord(store, key, kind);
  if (record === null) throw vanished(key);
  return record;
}

function vanished(key: string): StoreUnavailable {
  return new StoreUnavailable(
    `${key} was there and is gone: the store is not consistent, or somebody deletes from it`,
  );
}

function sameBytes(a: object, b: object): boolean {
  return Buffer.compare(canonicalBytes(a), canonicalBytes(b)) === 0;
}

function diverged(key: string, stored: unknown, computed: unknown, where: readonly string[]): Diverged {
  const message = `${key}: what was computed differs from the stored record in ${where.join('; ')}. The stored one stands.`;
  return new Diverged(message, { key, stored, computed });
}
