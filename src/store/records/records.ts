// Reads and writes records by the rule of their kind (R2): a choice is adopted, a function compared, a sequence continued. No record is
// ever overwritten, so any process may write, at any time and more than once.
import type { Digest } from '../../spec/records/parts.js';
import { canonicalBytes, canonicalText, differences } from './canonical.js';
import { sha256Hex } from '../../base/sha256.js';
import { inParallel } from '../../base/in-parallel.js';
import { sequenceKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { decodeRecord, encodeRecord } from './record-codec.js';
import type { RecordKind, RecordTypes } from '../../spec/records/record-kinds.js';
import { Diverged, isUnreadable, StoreUnavailable, UnreadableRecord } from '../record-errors.js';

interface StoredRecord<Kind extends RecordKind> {
  /** The stored record, with which every process continues. */
  record: RecordTypes[Kind];
  /** True if another process had stored its record first. */
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

/** Like `readRecord`, but throws `UnreadableRecord` if the record does not exist. */
export async function requireRecord<Kind extends RecordKind>(
  store: ObjectStore,
  key: string,
  kind: Kind,
): Promise<RecordTypes[Kind]> {
  const record = await readRecord(store, key, kind);
  if (record === null)
    throw new UnreadableRecord(key, 'it is not in the store, but other records refer to it');
  return record;
}

/** Like `readRecord`, but null for an unreadable record, too. For reports, which show the other records without it. */
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

/** Stores a choice (run, plan, episode, suite, evaluation, name of a run): the first record wins, and every process adopts it. */
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
 * Stores a function of earlier records (base, update, dataset and checkpoint manifests). If the stored record has another identity, throws
 * `Diverged` with both. The identity is the member `identity`, or else all members except `observed`.
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

/** Stores a file that is a function (batch, dataset files, assets). Throws `Diverged` if other bytes are stored. */
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
 * Appends to a sequence (owners, control, names, attempts): writes `{folder}{n}.json` at the first free n ≥ 1. If another author's record
 * takes n, calls `make` again for the next n, with all records stored by then. `make` returns one of `existing` if nothing is left to
 * write, or throws to refuse. `known`: the sequence's first records, if the caller has just read them.
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
    // The put's reply was lost: the record at n is our own, its clocks included.
    if (sameBytes(stored, record)) return stored;
    existing.push(stored);
  }
}

type SequenceKind = 'owner' | 'control' | 'name' | 'attempt' | 'gc' | 'notice' | 'instance' | 'saved';

/** All records of a sequence, in order: n = 1, 2, … without a gap. Does not read its first records, `known`, again. */
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

const sequencesRead = new WeakMap<ObjectStore, Map<string, readonly { n: number }[]>>();

/**
 * Like `readSequence`, for frequent readers: each record is read only once per store, because records never change (R1). The folder is listed
 * each time, to find the records of other writers.
 */
export async function rereadSequence<Kind extends SequenceKind>(
  store: ObjectStore,
  folder: string,
  kind: Kind,
): Promise<readonly RecordTypes[Kind][]> {
  const sequences = sequencesRead.get(store) ?? new Map<string, readonly { n: number }[]>();
  sequencesRead.set(store, sequences);
  const known = (sequences.get(folder) ?? []) as readonly RecordTypes[Kind][];
  const records = await readSequence(store, folder, kind, known);
  sequences.set(folder, records);
  return records;
}

/** The numbers of the records in a sequence's folder, ascending. */
export async function sequenceNumbers(store: ObjectStore, folder: string): Promise<number[]> {
  return (await store.listFolder(folder))
    .flatMap((name) => /^([1-9][0-9]*)\.json$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);
}

/** The part of a function's record that must be equal when two authors write it. */
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
    `${key} existed and is gone: the store is not consistent, or something deletes from it`,
  );
}

function sameBytes(a: object, b: object): boolean {
  return Buffer.compare(canonicalBytes(a), canonicalBytes(b)) === 0;
}

function diverged(key: string, stored: unknown, computed: unknown, where: readonly string[]): Diverged {
  const message = `${key}: the computed record differs from the stored record in ${where.join('; ')}. The stored record stays valid.`;
  return new Diverged(message, { key, stored, computed });
}
