// The last part of preparing a dataset: leaves out what failed a gate, splits the rest, and stores the dataset. A function of records.
import { sha256Hex } from '../base/sha256.js';
import { inParallel } from '../base/in-parallel.js';
import type { DatasetManifest, GatheredRecord, GateRecord } from '../spec/records/manifests.js';
import { gateNames } from '../spec/records/manifests.js';
import type { Demonstration, Task } from '../spec/records/task.js';
import { datasetFileKey, gateKey } from '../store/objects/layout.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { UnreadableRecord } from '../store/objects/store-errors.js';
import { recordDigest } from '../store/records/canonical.js';
import { readRecord } from '../store/records/records.js';
import type { DatasetReference } from '../spec/records/run-records.js';
import { jsonItems, writeDataset } from './dataset-writer.js';
import { datasetParts, requirePrepared } from './prepared-dataset.js';
import { readAsset } from './run-data.js';
import { solvedTasks, taskName } from './solved-tasks.js';
import type { Solution } from './task-file.js';
import { type Exclusion, splitAsBefore, splitTasks } from './task-selection.js';

/** Throws `InvalidSpec` if no task is left, or if the dataset whose split is frozen does not exist. */
export async function finish(store: ObjectStore, gathered: GatheredRecord): Promise<DatasetReference> {
  const { name, version, spec, files } = gathered;
  const items = async <T>(digest: string): Promise<T[]> => jsonItems<T>(await readAsset(store, digest));
  const tasks = await items<Task>(files.tasks);
  const excluded = await items<Exclusion>(files.excluded);
  const solutions = (await solvedTasks(store, gathered)).map(({ solution }) => solution);
  const given = await items<Demonstration>(files.demonstrations);

  const gates = await readGates(store, gathered, solutions);
  const failed = new Map<string, GateRecord>();
  for (const gate of gates.filter(({ passed }) => !passed))
    if (!failed.has(gate.task_key)) failed.set(gate.task_key, gate);
  for (const { task_key, gate, reason = gate } of failed.values())
    excluded.push({ task_key, stage: 'gate', reason });
  const solved = new Set(solutions.map(({ task_key }) => task_key));
  const isLeftOut = ({ task_key }: Task): boolean => spec.unsolved === 'leave_out' && !solved.has(task_key);
  for (const { task_key } of tasks.filter(isLeftOut))
    excluded.push({ task_key, stage: 'unsolved', reason: 'no solution was given or taught' });
  const passed = tasks.filter((task) => !failed.has(task.task_key) && !isLeftOut(task));

  const sides =
    spec.frozen === undefined
      ? splitTasks(passed, spec, excluded)
      : splitAsBefore(passed, await sidesIn(store, spec.frozen), spec.split?.held_out_ratio ?? null);
  const listDigest = sha256Hex(gates.map((gate) => `${recordDigest(gate)}\n`).join(''));
  return writeDataset(
    store,
    { name, version },
    {
      tasks: sides,
      demonstrations: [...given, ...shownSolutions(gates, sides)],
      tools: await readAsset(store, files.tools),
      prepared: { excluded, gathered: recordDigest(gathered), gates: listDigest },
    },
  );
}

/** In the order of solutions and gates. A task that fails a gate is not checked at the later ones. */
async function readGates(
  store: ObjectStore,
  gathered: GatheredRecord,
  solutions: readonly Solution[],
): Promise<GateRecord[]> {
  const { name, version } = gathered;
  const digest = recordDigest(gathered);
  const found = await inParallel(solutions, async ({ task_key }) => {
    const own: GateRecord[] = [];
    for (const gate of gateNames) {
      const key = gateKey(name, version, taskName(task_key), gate);
      const record = await readRecord(store, key, 'gate');
      if (record === null) throw new UnreadableRecord(key, 'it is not in the store');
      if (record.gathered !== digest)
        throw new UnreadableRecord(key, `it is of ${record.gathered}, not of this gathered.json (${digest})`);
      own.push(record);
      if (!record.passed) break;
    }
    return own;
  });
  return found.flat();
}

/** Solutions of training tasks that made no mistake, with what the environment answered. */
function shownSolutions(gates: readonly GateRecord[], tasks: readonly Task[]): Demonstration[] {
  const conversations = new Map(
    gates.map((gate) => [gate.task_key, gate]).reverse() as [string, GateRecord][],
  );
  return tasks.flatMap(({ task_key, env_key, env_variables, split }) => {
    const messages = conversations.get(task_key)?.messages;
    if (split !== 'train' || !messages) return [];
    return [{ kind: 'solution', env_key, task_key, env_variables, messages }];
  });
}

async function sidesIn(store: ObjectStore, id: string): Promise<Map<string, Task['split']>> {
  await requirePrepared(store, id, 'frozen');
  const tasks = await readDatasetItems<Task>(store, datasetParts(id), 'tasks.jsonl');
  return new Map(tasks.map(({ task_key, split }) => [task_key, split]));
}

/** Items of a file of a prepared dataset. */
export async function readDatasetItems<T>(
  store: ObjectStore,
  { name, version }: Pick<DatasetManifest, 'name' | 'version'>,
  path: string,
): Promise<T[]> {
  const key = datasetFileKey(name, version, path);
  const bytes = await store.get(key);
  if (bytes === null) throw new UnreadableRecord(key, 'it is not in the store');
  return jsonItems<T>(Buffer.from(bytes).toString('utf8'));
}
