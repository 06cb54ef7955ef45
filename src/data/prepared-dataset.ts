// Datasets that `longhaul data prepare` has made, by their name: `NAME@VERSION`.
import type { DatasetManifest } from '../spec/records/manifests.js';
import { InvalidSpec } from '../spec/invalid-spec.js';
import {
  datasetFileKey,
  datasetManifestKey,
  datasetsRoot,
  datasetVersionsFolder,
} from '../store/record-keys.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { UnreadableRecord } from '../store/record-errors.js';
import { readRecord } from '../store/records/records.js';
import { sha256Hex } from '../base/sha256.js';
import { jsonItems } from './dataset-writer.js';

/** The parts of `NAME@VERSION`. */
export function datasetParts(id: string): { name: string; version: string } {
  const [name = '', version = ''] = id.split('@', 2);
  return { name, version };
}

/** Throws `InvalidSpec`, which lists the existing datasets, if the store has no such dataset. `path`: the key that names it; `where`: the file. */
export async function requirePrepared(
  store: ObjectStore,
  id: string,
  path: string,
  where = 'the run spec',
): Promise<DatasetManifest> {
  const { name, version } = datasetParts(id);
  const manifest = await readRecord(store, datasetManifestKey(name, version), 'dataset');
  if (manifest?.prepared) return manifest;
  const known = await preparedDatasets(store);
  const fix =
    known.length === 0
      ? `make it: longhaul data prepare FILE`
      : `there are ${known.slice(0, 20).join(', ')}${known.length > 20 ? ', …' : ''}`;
  throw new InvalidSpec([{ path, problem: `${store.address} has no prepared dataset ${id}`, fix }], where);
}

/** `NAME@VERSION` of each version that has a manifest and was prepared, sorted. */
export async function preparedDatasets(store: ObjectStore): Promise<string[]> {
  const ids: string[] = [];
  const folders = async (prefix: string): Promise<string[]> =>
    (await store.listFolder(prefix)).flatMap((entry) => (entry.endsWith('/') ? [entry.slice(0, -1)] : []));
  for (const name of await folders(datasetsRoot)) {
    for (const version of await folders(datasetVersionsFolder(name))) {
      const manifest = await readRecord(store, datasetManifestKey(name, version), 'dataset');
      if (manifest?.prepared) ids.push(`${name}@${version}`);
    }
  }
  return ids;
}

/** Bytes of a file of a dataset, compared with its manifest. Throws `UnreadableRecord`. */
export async function readDatasetFile(
  store: ObjectStore,
  { name, version, files }: Pick<DatasetManifest, 'name' | 'version' | 'files'>,
  path: string,
): Promise<Uint8Array> {
  const key = datasetFileKey(name, version, path);
  const bytes = await store.get(key);
  if (bytes === null) throw new UnreadableRecord(key, 'it is not in the store');
  const found = sha256Hex(bytes);
  const listed = files.find((file) => file.path === path)?.sha256;
  if (found !== listed)
    throw new UnreadableRecord(key, `its sha256 is ${found}, but its manifest says ${listed ?? 'nothing'}`);
  return bytes;
}

/** Items of a file of lines. */
export async function readDatasetItems<T>(
  store: ObjectStore,
  manifest: Pick<DatasetManifest, 'name' | 'version' | 'files'>,
  path: string,
): Promise<T[]> {
  return jsonItems<T>(Buffer.from(await readDatasetFile(store, manifest, path)).toString('utf8'));
}
