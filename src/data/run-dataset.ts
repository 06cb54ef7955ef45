// The dataset of a run: a prepared one, or one that the run's start makes of files. The version's name is a hash of its content.
import type { DatasetReference } from '../spec/records/run-records.js';
import type { DataSpec, EnvironmentSpec, RunSpec } from '../spec/run-spec.js';
import type { Digest } from '../spec/records/parts.js';
import type { Demonstration, Task } from '../spec/records/task.js';
import { canonicalText, recordDigest } from '../store/records/canonical.js';
import { sha256Hex } from '../base/sha256.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { readSource, readSourceText } from './data-source.js';
import { malformedCall } from './demonstration-format.js';
import { lines, writeDataset, writeVerifiers } from './dataset-writer.js';
import { refuseUnplayable, refuseVerifiers } from './environment-check.js';
import { requirePrepared } from './prepared-dataset.js';
import { BadDataFile, parseDemonstrations, TaskRows } from './task-file.js';
import { NothingSelected, selectTasks } from './task-selection.js';
import { toolListsFor } from './tool-lists.js';

/**
 * Throws as `readSource` does; and `InvalidSpec` if there is no such prepared dataset, if nobody can play on an environment, or if one that
 * demonstrations name cannot list its tools.
 */
export async function takeUpDataset(
  store: ObjectStore,
  { data, environments }: Pick<RunSpec, 'data' | 'environments'>,
  signal?: AbortSignal,
): Promise<DatasetReference> {
  if (data.source === undefined) return takeUpFiles(store, data, environments, signal);
  const { name, version, ...manifest } = await requirePrepared(store, data.source, 'data.source');
  await refuseUnplayable(environments, signal);
  return { name, version, digest: recordDigest({ name, version, ...manifest }) };
}

async function takeUpFiles(
  store: ObjectStore,
  data: DataSpec,
  environments: readonly EnvironmentSpec[],
  signal: AbortSignal | undefined,
): Promise<DatasetReference> {
  const { tasks, demonstrations, verifiers } = await readDataFiles(data, signal);
  refuseVerifiers(environments, tasks, verifiers);
  await refuseUnplayable(environments, signal, tasks);
  const lists = await toolListsFor(demonstrations, tasks, environments, signal ? { signal } : {});
  const used = new Set(tasks.map(({ verifier }) => verifier));
  await writeVerifiers(
    store,
    [...verifiers].filter(([sha256]) => used.has(sha256)),
  );
  const tools = canonicalText(lists);
  const version = sha256Hex(
    canonicalText({
      tasks: sha256Hex(lines(tasks)),
      demonstrations: sha256Hex(lines(demonstrations)),
      ...(Object.keys(lists).length === 0 ? {} : { tools: sha256Hex(tools) }),
    }),
  ).slice(0, 16);
  return writeDataset(store, { name: 'files', version }, { tasks, demonstrations, tools });
}

export interface DataFiles {
  tasks: Task[];
  demonstrations: Demonstration[];
  /** Code by its sha256, of all tasks of the file. */
  verifiers: Map<Digest, string>;
}

function selected(tasks: readonly Task[], file: string, data: DataSpec): Task[] {
  try {
    return selectTasks(tasks, data);
  } catch (error) {
    if (error instanceof NothingSelected) throw new BadDataFile(file, [error.message]);
    throw error;
  }
}

/** Reads the data files that a spec names. Throws as `readSource` does. */
export async function readDataFiles(data: DataSpec, signal?: AbortSignal): Promise<DataFiles> {
  const { tasks: path = 'data.tasks', demonstrations: shown } = data;
  const verifiers = new Map<Digest, string>();
  const rows = new TaskRows(path, (sha256, code) => verifiers.set(sha256, code));
  if (data.tasks !== undefined) await readSource(path, (piece) => rows.push(piece), signal);
  const tasks = selected(rows.end(), path, data);
  const demonstrations = await readDemonstrations(shown, signal);
  return { tasks, demonstrations, verifiers };
}

/** Empty without a file. Throws as `readSource` does. */
export async function readDemonstrations(
  file: string | undefined,
  signal?: AbortSignal,
): Promise<Demonstration[]> {
  return file === undefined
    ? []
    : parseDemonstrations(await readSourceText(file, signal), file, malformedCall);
}
