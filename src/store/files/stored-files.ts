// Large files that a manifest lists with size and sha256. They are create-only, and every byte is checked at each download (R31).
import { rm } from 'node:fs/promises';
import type { Digest, FileEntry } from '../../spec/records/parts.js';
import { sha256File, sha256Pieces } from '../../base/sha256.js';
import type { ObjectStore } from '../objects/object-store.js';
import { CorruptCheckpoint, Diverged } from '../record-errors.js';
import { reporting, type Transfer } from '../objects/transfer.js';

/** Uploads a file that is a function (R2). Throws `Diverged` if the store already holds other bytes. */
export async function uploadSame(
  store: ObjectStore,
  key: string,
  path: string,
  file: FileEntry,
  { signal, onProgress }: Transfer,
): Promise<void> {
  if ((await store.createFromFile(key, path, { signal, onProgress })) === 'created') return;
  const found = await digestOf(store, key, onProgress);
  if (found?.sha256 === file.sha256 && found.size === file.size) return;
  throw new Diverged(
    `${key}: the stored file has sha256 ${found?.sha256 ?? 'none'}, but the file on disk has ${file.sha256}. The stored file stays valid.`,
    { key, stored: found, computed: file },
  );
}

/** Downloads a file to `path`. Throws `CorruptCheckpoint`, and leaves nothing at `path`, if it is missing or has other bytes. */
export async function fetchListed(
  store: ObjectStore,
  key: string,
  file: FileEntry,
  path: string,
  transfer: Transfer,
): Promise<void> {
  if (!(await store.getToFile(key, path, transfer))) throw missing(key, file);
  const found = await sha256File(path, transfer.signal);
  if (found.size === file.size && found.sha256 === file.sha256) return;
  await rm(path, { force: true });
  throw new CorruptCheckpoint(key, file.sha256, mismatch(file, found));
}

/** Reads every byte of the stored file, and checks size and sha256. Throws `CorruptCheckpoint`. */
export async function verifyListed(store: ObjectStore, key: string, file: FileEntry): Promise<void> {
  const found = await digestOf(store, key);
  if (!found) throw missing(key, file);
  if (found.size !== file.size || found.sha256 !== file.sha256)
    throw new CorruptCheckpoint(key, file.sha256, mismatch(file, found));
}

async function digestOf(
  store: ObjectStore,
  key: string,
  onProgress?: Transfer['onProgress'],
): Promise<{ size: number; sha256: Digest } | null> {
  const pieces = await store.stream(key);
  return pieces && sha256Pieces(reporting(pieces, onProgress));
}

function missing(key: string, { sha256 }: FileEntry): CorruptCheckpoint {
  return new CorruptCheckpoint(key, sha256, 'it is missing, but its manifest exists');
}

function mismatch(file: FileEntry, found: { size: number; sha256: Digest }): string {
  return `it has ${found.size} bytes with sha256 ${found.sha256}; its manifest says ${file.size} with ${file.sha256}`;
}
