// The batch of a step. When a collection folds the step, a compressed file replaces the first file (R23). The compressed file is written
// before the other is deleted, so a reader always finds one of the two.
import { writeFile } from 'node:fs/promises';
import type { Digest } from '../../spec/records/parts.js';
import { sha256Hex } from '../../base/sha256.js';
import { batchKey, foldedBatchKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { compressSmall, decompress } from '../records/record-codec.js';
import { UnreadableRecord } from '../record-errors.js';

/** `run`: the run whose folder holds the step. Null if there is no batch. Throws `UnreadableRecord` if its compressed file is broken. */
export async function readBatch(store: ObjectStore, run: string, step: number): Promise<Uint8Array | null> {
  const bytes = await store.get(batchKey(run, step));
  return bytes ?? readFolded(store, run, step);
}

/** Like `readBatch`, but writes the batch to a file. False if there is no batch. */
export async function fetchBatchFile(
  store: ObjectStore,
  run: string,
  step: number,
  path: string,
): Promise<boolean> {
  if (await store.getToFile(batchKey(run, step), path)) return true;
  const bytes = await readFolded(store, run, step);
  if (bytes) await writeFile(path, bytes);
  return bytes !== null;
}

/**
 * Replaces a batch by its compressed file. Returns the bytes freed, 0 if there is nothing to fold. Throws `UnreadableRecord` if either file
 * is not the batch that the update names.
 */
export async function foldBatch(
  store: ObjectStore,
  run: string,
  step: number,
  recorded: Digest,
): Promise<number> {
  const [key, folded] = [batchKey(run, step), foldedBatchKey(run, step)];
  const bytes = await store.get(key);
  if (!bytes) return 0;
  if (sha256Hex(bytes) !== recorded)
    throw new UnreadableRecord(key, 'its sha256 is not the one in update.json');
  const compressed = await compressSmall(bytes);
  const answer = await store.create(folded, compressed);
  const readBack = await readFolded(store, run, step);
  if (!readBack || sha256Hex(readBack) !== recorded)
    throw new UnreadableRecord(folded, 'it is not the batch that update.json names');
  await store.delete(key);
  return bytes.length - (answer === 'created' ? compressed.length : 0);
}

async function readFolded(store: ObjectStore, run: string, step: number): Promise<Uint8Array | null> {
  const key = foldedBatchKey(run, step);
  const bytes = await store.get(key);
  return bytes && decompress(key, bytes);
}
