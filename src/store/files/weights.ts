// The weights of a supplied model, stored once for all runs that start from them: `weights/{digest}/`, data file first, manifest last. When
// they are stored, a run no longer needs the folder that the user gave.
import type { Digest, FileEntry } from '../../spec/records/parts.js';
import type { WeightsManifest } from '../../spec/records/manifests.js';
import { sha256File } from '../../base/sha256.js';
import { weightsFileKey, weightsManifestKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord, recordFunction } from '../records/records.js';
import { CorruptCheckpoint } from '../record-errors.js';
import { fetchListed, uploadSame, verifyListed } from './stored-files.js';
import type { Transfer } from '../objects/transfer.js';

const weightsFile = 'weights.safetensors';

export async function weightsExist(store: ObjectStore, weights: Digest): Promise<boolean> {
  return (await store.head(weightsManifestKey(weights))) !== null;
}

/** Uploads a file that the engine's `save_weights` wrote. The file is canonical, so a second upload has the same bytes. */
export async function writeWeights(
  store: ObjectStore,
  weights: Digest,
  path: string,
  transfer: Transfer = {},
): Promise<WeightsManifest> {
  const file: FileEntry = { path: weightsFile, ...(await sha256File(path, transfer.signal)) };
  await uploadSame(store, weightsFileKey(weights, weightsFile), path, file, transfer);
  transfer.signal?.throwIfAborted();
  const manifest: WeightsManifest = { schema: 'longhaul.weights/1', weights, files: [file] };
  return (await recordFunction(store, weightsManifestKey(weights), 'weights', manifest)).record;
}

/** Downloads the weights to `path`, checking size and sha256. Throws `CorruptCheckpoint`. */
export async function fetchWeights(
  store: ObjectStore,
  weights: Digest,
  path: string,
  transfer: Transfer = {},
): Promise<void> {
  const file = await listedFile(store, weights);
  await fetchListed(store, weightsFileKey(weights, file.path), file, path, transfer);
}

/** Reads every byte of the stored weights, and checks size and sha256. Throws `CorruptCheckpoint`. */
export async function verifyWeights(store: ObjectStore, weights: Digest): Promise<void> {
  const file = await listedFile(store, weights);
  await verifyListed(store, weightsFileKey(weights, file.path), file);
}

async function listedFile(store: ObjectStore, weights: Digest): Promise<FileEntry> {
  const key = weightsManifestKey(weights);
  const manifest = await readRecord(store, key, 'weights');
  if (!manifest) throw new CorruptCheckpoint(key, null, 'it is missing: the upload never ended');
  if (manifest.weights !== weights)
    throw new CorruptCheckpoint(key, null, `it belongs to the weights ${manifest.weights}`);
  const file = manifest.files.find(({ path }) => path === weightsFile);
  if (!file) throw new CorruptCheckpoint(key, null, `it lists no ${weightsFile}`);
  return file;
}
