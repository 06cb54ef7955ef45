// Digests of a run's demonstrations; supervised batches are sealed from these.
import type { Digest } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { AuditReport } from './audit-report.js';
import { canonicalText, recordDigest } from '../records/canonical.js';
import { sha256Hex } from '../../base/sha256.js';
import { datasetFileKey, datasetManifestKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';

/** One digest for each line of `demonstrations.jsonl`; empty, and a violation, if the data is missing or is not the run's data. */
export async function demonstrationDigests(
  store: ObjectStore,
  { dataset }: RunRecord,
  report: AuditReport,
): Promise<Digest[]> {
  const key = datasetManifestKey(dataset.name, dataset.version);
  const manifest = await report.read(store, key, 'dataset');
  if (!manifest || recordDigest(manifest) !== dataset.digest) {
    report.add('R7', key, 'it is not the dataset that run.json names');
    return [];
  }
  const file = manifest.files.find(({ path }) => path === 'demonstrations.jsonl');
  const fileKey = datasetFileKey(dataset.name, dataset.version, 'demonstrations.jsonl');
  const bytes = await store.get(fileKey);
  if (bytes === null || sha256Hex(bytes) !== file?.sha256) {
    report.add('R7', fileKey, bytes === null ? 'it is missing' : 'its sha256 is not the one in its manifest');
    return [];
  }
  const lines = Buffer.from(bytes).toString('utf8').split('\n');
  return lines.filter((line) => line !== '').map((line) => sha256Hex(canonicalText(JSON.parse(line))));
}
