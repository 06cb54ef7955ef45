// Datasets that `longhaul data prepare` has made, by their name: `NAME@VERSION`.
import type { DatasetManifest } from '../spec/records/manifests.js';
import { InvalidSpec } from '../spec/invalid-spec.js';
import { datasetManifestKey, datasetsRoot, datasetVersionsFolder } from '../store/objects/layout.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { readRecord } from '../store/records/records.js';

/** The parts of `NAME@VERSION`. */
export function datasetParts(id: string): { name: string; version: string } {
  const [name = '', version = ''] = id.split('@', 2);
  return { name, version };
}

/** `path`: the key that names it. Throws `InvalidSpec`, which lists what there is, if the store has no such dataset. */
export async function requirePrepared(
  store: ObjectStore,
  id: string,
  path: string,
): Promise<DatasetManifest> {
  const { name, version } = datasetParts(id);
  const manifest = await readRecord(store, datasetManifestKey(name, version), 'dataset');
  if (manifest) return manifest;
  const known = await preparedDatasets(store);
  const fix =
    known.length === 0
      ? `make it: longhaul data prepare FILE`
      : `there are ${known.slice(0, 20).join(', ')}${known.length > 20 ? ', …' : ''}`;
  throw new InvalidSpec([{ path, problem: `${store.address} has no dataset ${id} that is ready`, fix }]);
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
