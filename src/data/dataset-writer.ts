// Stores an immutable dataset version: its files, then its manifest.
import { parseJson, writeJson } from '../base/json.js';
import { inParallel } from '../base/in-parallel.js';
import { sha256Hex } from '../base/sha256.js';
import type { DatasetManifest } from '../spec/records/manifests.js';
import type { DatasetReference } from '../spec/records/run-records.js';
import type { Digest } from '../spec/records/parts.js';
import type { Demonstration, Task } from '../spec/records/task.js';
import { recordDigest } from '../store/records/canonical.js';
import { assetKey, datasetFileKey, datasetManifestKey } from '../store/record-keys.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { createFile, recordFunction } from '../store/records/records.js';
import type { Exclusion } from './task-selection.js';

interface DatasetFiles {
  tasks: readonly Task[];
  demonstrations: readonly Demonstration[];
  /** Tools by environment, as canonical JSON. */
  tools: string;
  /** What a prepared dataset also has. */
  prepared?: {
    excluded: readonly Exclusion[];
    /** Digest of the record of what was gathered. */
    gathered: Digest;
    /** List digest of the gate records. */
    gates: Digest;
    /** Number of tasks that were checked. */
    solved: number;
  };
}

/** Throws `Diverged` if the version is stored with other content. */
export async function writeDataset(
  store: ObjectStore,
  { name, version }: { name: string; version: string },
  { tasks, demonstrations, tools, prepared }: DatasetFiles,
): Promise<DatasetReference> {
  const files = [];
  for (const [path, text] of [
    ['tasks.jsonl', lines(tasks)],
    ['demonstrations.jsonl', lines(demonstrations)],
    ['tools.json', tools],
    ...(prepared ? [['excluded.jsonl', lines(prepared.excluded)] as const] : []),
  ] as const) {
    const key = datasetFileKey(name, version, path);
    const { size, sha256 } = await createFile(store, key, Buffer.from(text));
    files.push({ path, size, sha256 });
  }
  const counts = (of: readonly string[]): Record<string, number> => {
    const found: Record<string, number> = {};
    for (const one of of) found[one] = (found[one] ?? 0) + 1;
    return found;
  };
  const heldOut = tasks.filter(({ split }) => split === 'held_out').length;
  const manifest: DatasetManifest = {
    schema: 'longhaul.dataset/2',
    name,
    version,
    files,
    tasks: tasks.length,
    train_tasks: tasks.length - heldOut,
    held_out_tasks: heldOut,
    demonstrations: counts(demonstrations.map(({ kind }) => kind)),
    ...(prepared
      ? {
          prepared: {
            gathered: prepared.gathered,
            gates: prepared.gates,
            solved: prepared.solved,
            excluded: counts(prepared.excluded.map(({ stage }) => stage)),
          },
        }
      : {}),
  };
  const { record } = await recordFunction(store, datasetManifestKey(name, version), 'dataset', manifest);
  return { name, version, digest: recordDigest(record) };
}

/** Stores the code of verifiers; each is an asset, named by its sha256. */
export async function writeVerifiers(
  store: ObjectStore,
  verifiers: Iterable<[sha256: Digest, code: string]>,
): Promise<void> {
  await inParallel([...verifiers], ([sha256, code]) =>
    createFile(store, assetKey(sha256), Buffer.from(code)),
  );
}

/** Stores a text as an asset; returns its name. */
export async function writeAsset(store: ObjectStore, text: string): Promise<Digest> {
  const bytes = Buffer.from(text);
  return (await createFile(store, assetKey(sha256Hex(bytes)), bytes)).sha256;
}

export function lines(items: readonly object[]): string {
  return items.map((item) => `${writeJson(item)}\n`).join('');
}

/** The inverse of `lines`. */
export function jsonItems<T>(text: string): T[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => parseJson(line) as T);
}
