// Datasets never change once written: each is read and parsed once per process.
import { parseDemonstrations, parseTasks } from './task-file.js';
import type { DatasetReference } from '../spec/records.js';
import type { Demonstration, Task, ToolSpec } from '../spec/task.js';
import { datasetFileKey } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { UnreadableRecord } from '../store/store-errors.js';

export interface Dataset {
  tasks: Task[];
  taskByKey: Map<string, Task>;
  demonstrations: Demonstration[];
  /** What each environment offered when the demonstrations were made. */
  tools: Record<string, readonly ToolSpec[]>;
  /** Lines of `demonstrations.jsonl` by kind. */
  demonstrationsByKind: Map<string, number[]>;
}

export class DatasetCache {
  readonly #datasets = new Map<string, Promise<Dataset>>();

  constructor(
    private readonly store: ObjectStore,
    private readonly capacity = 4,
  ) {}

  load(reference: DatasetReference): Promise<Dataset> {
    const held = this.#datasets.get(reference.digest);
    if (held) return held;
    const loading = loadDataset(this.store, reference);
    this.#datasets.set(reference.digest, loading);
    loading.catch(() => this.#datasets.delete(reference.digest));
    const oldest = this.#datasets.keys().next().value;
    if (this.#datasets.size > this.capacity && oldest !== undefined) this.#datasets.delete(oldest);
    return loading;
  }
}

async function loadDataset(store: ObjectStore, { name, version }: DatasetReference): Promise<Dataset> {
  const tasks = parseTasks(...(await readText(store, datasetFileKey(name, version, 'tasks.jsonl'))));
  const demonstrations = parseDemonstrations(
    ...(await readText(store, datasetFileKey(name, version, 'demonstrations.jsonl'))),
  );
  const [tools] = await readText(store, datasetFileKey(name, version, 'tools.json'));
  const byKind = new Map<string, number[]>();
  for (const [line, { kind }] of demonstrations.entries()) {
    const lines = byKind.get(kind);
    if (lines) lines.push(line);
    else byKind.set(kind, [line]);
  }
  return {
    tasks,
    taskByKey: new Map(tasks.map((task) => [task.task_key, task])),
    demonstrations,
    tools: JSON.parse(tools) as Dataset['tools'],
    demonstrationsByKind: byKind,
  };
}

async function readText(store: ObjectStore, key: string): Promise<[string, string]> {
  const bytes = await store.get(key);
  if (bytes === null) throw new UnreadableRecord(key, 'it is not in the store');
  return [Buffer.from(bytes).toString('utf8'), key];
}
