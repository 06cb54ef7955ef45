// Stores a run's data as an immutable dataset version. The version's name is a hash of its content.
import { readFile } from 'node:fs/promises';
import { appByName } from '../environments/apps/registry.js';
import type { DatasetManifest } from '../spec/records/manifests.js';
import type { DatasetReference } from '../spec/records/run-records.js';
import type { BuiltinDataSpec, DataSpec, EnvironmentSpec, RunSpec } from '../spec/run-spec.js';
import type { Digest } from '../spec/records/parts.js';
import type { Demonstration, Task } from '../spec/records/task.js';
import { canonicalText, recordDigest } from '../store/records/canonical.js';
import { sha256Hex } from '../base/sha256.js';
import { startThread } from '../base/worker-thread.js';
import { parseS3Address } from '../store/objects/s3-address.js';
import { isInBucket } from '../spec/spec-paths.js';
import { datasetFileKey, datasetManifestKey } from '../store/objects/layout.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { createFile, readRecord, recordFunction } from '../store/records/records.js';
import { refuseUnplayable } from './environment-check.js';
import { BadDataFile, parseDemonstrations, parseTasks } from './task-file.js';
import { NothingSelected, selectTasks } from './task-selection.js';
import { toolListsFor } from './tool-lists.js';

/** Increased whenever the generator's output changes, so that data of an older generator is never taken for new data. */
const generatorVersion = 2;
const generator = new URL('./dataset-generator.js', import.meta.url);
const generatorDeadlineMs = 10 * 60_000;

/** Throws `BadDataFile`; and `InvalidSpec` if nobody can play on an environment, or if one that demonstrations name cannot list its tools. */
export async function prepareDataset(
  store: ObjectStore,
  { data, environments }: Pick<RunSpec, 'data' | 'environments'>,
  signal?: AbortSignal,
): Promise<DatasetReference> {
  return data.builtin
    ? prepareBuiltin(store, data.builtin, signal)
    : prepareFiles(store, data, environments, signal);
}

async function prepareBuiltin(
  store: ObjectStore,
  spec: BuiltinDataSpec,
  signal: AbortSignal | undefined,
): Promise<DatasetReference> {
  const name = ['builtin', ...spec.apps].join('-');
  const version = sha256Hex(canonicalText({ generatorVersion, ...spec })).slice(0, 16);
  const manifest = await readRecord(store, datasetManifestKey(name, version), 'dataset');
  if (manifest) return { name, version, digest: recordDigest(manifest) };
  const thread = startThread<BuiltinDataSpec, Pick<DatasetTexts, 'tasks' | 'demonstrations'>>(generator, {
    deadlineMs: generatorDeadlineMs,
    signal,
  });
  const generated = await thread.call(spec).finally(thread.end);
  const tools = Object.fromEntries(spec.apps.map((app) => [app, appByName(app).tools]));
  return writeDataset(store, name, version, { ...generated, tools: canonicalText(tools) });
}

async function prepareFiles(
  store: ObjectStore,
  data: DataSpec,
  environments: readonly EnvironmentSpec[],
  signal: AbortSignal | undefined,
): Promise<DatasetReference> {
  const { tasks, demonstrations: shown, verifiers } = await readDataFiles(data);
  await refuseUnplayable(environments, signal);
  const lists = await toolListsFor(shown, tasks, environments, signal ? { signal } : {});
  const used = new Set(tasks.map(({ verifier }) => verifier));
  const kept = [...verifiers].filter(([sha256]) => used.has(sha256)).sort(([a], [b]) => (a < b ? -1 : 1));
  const texts = {
    ...{ tasks: lines(tasks), demonstrations: lines(shown), tools: canonicalText(lists) },
    ...(kept.length === 0 ? {} : { verifiers: canonicalText(Object.fromEntries(kept)) }),
  };
  const version = sha256Hex(
    canonicalText({
      tasks: sha256Hex(texts.tasks),
      demonstrations: sha256Hex(texts.demonstrations),
      ...(Object.keys(lists).length === 0 ? {} : { tools: sha256Hex(texts.tools) }),
    }),
  );
  return writeDataset(store, 'files', version.slice(0, 16), texts);
}

interface DataFiles {
  tasks: Task[];
  demonstrations: Demonstration[];
  /** Code by its sha256, of all tasks of the file. */
  verifiers: Map<Digest, string>;
}

/** The tasks of a file that the spec selects, each on its side of the split. Throws `BadDataFile`. */
export function tasksIn(text: string, file: string, data: DataSpec, verifiers?: Map<Digest, string>): Task[] {
  const tasks = parseTasks(text, file, verifiers);
  try {
    return selectTasks(tasks, data);
  } catch (error) {
    if (error instanceof NothingSelected) throw new BadDataFile(file, [error.message]);
    throw error;
  }
}

/** Reads the data files that a spec names. Throws `BadDataFile`. */
export async function readDataFiles(data: DataSpec): Promise<DataFiles> {
  const read = (path: string | undefined) => (path === undefined ? '' : readText(path));
  const verifiers = new Map<Digest, string>();
  const tasks = tasksIn(await read(data.tasks), data.tasks ?? 'data.tasks', data, verifiers);
  const demonstrations = parseDemonstrations(
    await read(data.demonstrations),
    data.demonstrations ?? 'data.demonstrations',
  );
  return { tasks, demonstrations, verifiers };
}

interface DatasetTexts {
  tasks: string;
  demonstrations: string;
  /** Tools by environment, as canonical JSON. */
  tools: string;
  /** Code of the tasks' verifiers by sha256, as canonical JSON; absent if no task has one. */
  verifiers?: string;
}

async function writeDataset(
  store: ObjectStore,
  name: string,
  version: string,
  { tasks, demonstrations, tools, verifiers }: DatasetTexts,
): Promise<DatasetReference> {
  const files = [];
  for (const [path, text] of [
    ['tasks.jsonl', tasks],
    ['demonstrations.jsonl', demonstrations],
    ['tools.json', tools],
    ...(verifiers === undefined ? [] : [['verifiers.json', verifiers] as const]),
  ] as const) {
    const bytes = Buffer.from(text);
    const { size, sha256 } = await createFile(store, datasetFileKey(name, version, path), bytes);
    files.push({ path, size, sha256 });
  }
  const parsedTasks = parseTasks(tasks, 'tasks.jsonl');
  const kinds: Record<string, number> = {};
  for (const { kind } of parseDemonstrations(demonstrations, 'demonstrations.jsonl'))
    kinds[kind] = (kinds[kind] ?? 0) + 1;
  const manifest: DatasetManifest = {
    schema: 'longhaul.dataset/1',
    name,
    version,
    files,
    tasks: parsedTasks.length,
    train_tasks: parsedTasks.filter((task) => task.split === 'train').length,
    held_out_tasks: parsedTasks.filter((task) => task.split === 'held_out').length,
    demonstrations: kinds,
  };
  const { record } = await recordFunction(store, datasetManifestKey(name, version), 'dataset', manifest);
  return { name, version, digest: recordDigest(record) };
}

async function readText(path: string): Promise<string> {
  try {
    const bytes = isInBucket(path) ? await readFromBucket(path) : await readFile(path);
    // Strict decoding: a replaced character would silently change a task. The decoder drops a byte order mark.
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    if (error instanceof TypeError) throw new BadDataFile(path, ['is not UTF-8 text; save it as UTF-8']);
    throw new BadDataFile(path, [`cannot be read: ${(error as Error).message}`]);
  }
}

/** `path`: `s3://bucket/key`, with the parameters of a store's address. Credentials come from the environment, as a store's do. */
async function readFromBucket(path: string): Promise<Uint8Array> {
  const [place = '', query] = path.split('?', 2);
  const slash = place.lastIndexOf('/');
  const address = `${place.slice(0, slash)}${query === undefined ? '' : `?${query}`}`;
  const { openS3Store } = await import('../store/objects/s3-store.js');
  const bytes = await openS3Store(parseS3Address(address)).get(decodeURIComponent(place.slice(slash + 1)));
  if (bytes === null) throw new Error('there is no such object');
  return bytes;
}

export function lines(items: readonly (Task | Demonstration)[]): string {
  return items.map((item) => `${JSON.stringify(item)}\n`).join('');
}
