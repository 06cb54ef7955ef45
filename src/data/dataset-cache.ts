// Caches datasets. A dataset never changes once it is written, so each is read and parsed once per process.
import { parseJson } from '../base/json.js';
import { RecentlyUsed } from '../base/recently-used.js';
import { readDatasetFile } from './prepared-dataset.js';
import { parseDemonstrations, parseTasks } from './task-file.js';
import type { DatasetManifest } from '../spec/records/manifests.js';
import type { DatasetReference } from '../spec/records/run-records.js';
import type { Demonstration, Task, ToolSpec } from '../spec/records/task.js';
import { recordDigest } from '../store/records/canonical.js';
import { datasetManifestKey } from '../store/record-keys.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { requireRecord } from '../store/records/records.js';
import { UnreadableRecord } from '../store/record-errors.js';

export interface Dataset {
  tasks: Task[];
  taskByKey: Map<string, Task>;
  /** Keys of the training tasks by template and by environment, in data order. */
  trainTasks: Record<'template' | 'env', Map<string, string[]>>;
  demonstrations: Demonstration[];
  /** The tools that each environment offered when the dataset was prepared. */
  tools: Record<string, readonly ToolSpec[]>;
  /** Line numbers in `demonstrations.jsonl`, from 0, by kind of demonstration. */
  demonstrationsByKind: Map<string, number[]>;
}

/** Number of datasets kept: one for each run that may be active at once. */
const datasetsKept = 64;

export class DatasetCache {
  private readonly datasets = new RecentlyUsed<Dataset>(datasetsKept);

  constructor(private readonly store: ObjectStore) {}

  load(reference: DatasetReference): Promise<Dataset> {
    return this.datasets.get(reference.digest, () => loadDataset(this.store, reference));
  }
}

async function loadDataset(store: ObjectStore, reference: DatasetReference): Promise<Dataset> {
  const manifest = await readManifest(store, reference);
  const read = async (path: string) =>
    Buffer.from(await readDatasetFile(store, manifest, path)).toString('utf8');
  const tasks = parseTasks(await read('tasks.jsonl'), 'tasks.jsonl');
  const demonstrations = parseDemonstrations(await read('demonstrations.jsonl'), 'demonstrations.jsonl');
  const tools = await read('tools.json');
  const byKind = new Map<string, number[]>();
  for (const [line, { kind }] of demonstrations.entries()) {
    const lines = byKind.get(kind);
    if (lines) lines.push(line);
    else byKind.set(kind, [line]);
  }
  return {
    tasks,
    taskByKey: new Map(tasks.map((task) => [task.task_key, task])),
    trainTasks: {
      template: trainTasksBy(tasks, ({ template }) => template),
      env: trainTasksBy(tasks, ({ env_key }) => env_key),
    },
    demonstrations,
    tools: parseJson(tools) as Dataset['tools'],
    demonstrationsByKind: byKind,
  };
}

async function readManifest(
  store: ObjectStore,
  { name, version, digest }: DatasetReference,
): Promise<DatasetManifest> {
  const key = datasetManifestKey(name, version);
  const manifest = await requireRecord(store, key, 'dataset');
  const found = recordDigest(manifest);
  if (found === digest) return manifest;
  throw new UnreadableRecord(key, `it was changed: its digest is ${found}, but the run recorded ${digest}`);
}

function trainTasksBy(tasks: readonly Task[], poolOf: (task: Task) => string): Map<string, string[]> {
  const pools = new Map<string, string[]>();
  for (const task of tasks) {
    if (task.split !== 'train') continue;
    const keys = pools.get(poolOf(task));
    if (keys) keys.push(task.task_key);
    else pools.set(poolOf(task), [task.task_key]);
  }
  return pools;
}
