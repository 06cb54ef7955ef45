// The last part of preparing a dataset: leaves out what failed a gate, splits the rest, and stores the dataset. A function of records.
import { sha256Hex } from '../../base/sha256.js';
import { inParallel } from '../../base/in-parallel.js';
import type { GatheredRecord, GateRecord } from '../../spec/records/preparation-records.js';
import { gateNames } from '../../spec/records/preparation-records.js';
import type { Demonstration, Task } from '../../spec/records/task.js';
import { gateKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { UnreadableRecord } from '../../store/record-errors.js';
import { recordDigest } from '../../store/records/canonical.js';
import { readRecord } from '../../store/records/records.js';
import type { DatasetReference } from '../../spec/records/run-records.js';
import { jsonItems, writeDataset } from '../dataset-writer.js';
import { readDatasetItems, requirePrepared } from '../prepared-dataset.js';
import { readAsset } from '../run-data.js';
import { gatheredItems, solvedTasks, taskName } from './solved-tasks.js';
import { datasetId } from '../../spec/dataset-spec.js';
import { InvalidSpec } from '../../spec/invalid-spec.js';
import { type Exclusion, splitAsBefore, splitTasks } from '../task-selection.js';

/** Throws `InvalidSpec` if no task is left, or if the dataset whose split is frozen does not exist. */
export async function finish(store: ObjectStore, gathered: GatheredRecord): Promise<DatasetReference> {
  const { name, version, spec, files } = gathered;
  const { tasks } = await gatheredItems(store, gathered);
  const known =
    spec.frozen === undefined ? new Map<string, Task['split']>() : await sidesIn(store, spec.frozen);
  const excluded = jsonItems<Exclusion>(await readAsset(store, files.excluded));
  const checked = await readGates(store, gathered);
  const passed = tasks.filter(({ task_key }) => {
    const found = checked.get(task_key) ?? [];
    const problem = problemOf(gathered, found);
    const side = known.get(task_key);
    if (problem) excluded.push({ task_key, ...problem, ...(side ? { split: side } : {}) });
    return problem === null;
  });
  if (passed.length === 0 && tasks.length > 0) throw nothingLeft(gathered, excluded);

  const sides =
    spec.frozen === undefined
      ? splitTasks(passed, spec, excluded)
      : splitAsBefore(passed, known, spec.split?.held_out_ratio ?? null);
  const gates = [...checked.values()].flat();
  return writeDataset(
    store,
    { name, version },
    {
      tasks: sides,
      demonstrations: [
        ...trainedOn(jsonItems<Demonstration>(await readAsset(store, files.demonstrations)), tasks, sides),
        ...shownSolutions(gates, sides),
      ],
      tools: await readAsset(store, files.tools),
      prepared: {
        excluded,
        gathered: recordDigest(gathered),
        gates: sha256Hex(gates.map(({ isTaught: _, ...gate }) => `${recordDigest(gate)}\n`).join('')),
        solved: checked.size,
      },
    },
  );
}

/** Why a task is left out, by its gates; null if it stays. */
function problemOf({ spec }: GatheredRecord, gates: readonly Checked[]): Omit<Exclusion, 'task_key'> | null {
  const failed = gates.find(({ passed }) => !passed);
  // A teacher's solution may fail because it leaves out a call that failed. Then the task is only unsolved; but a task that doing nothing solves
  // is wrong in any case.
  const isUnsolved = failed ? failed.isTaught && failed.gate !== 'nothing' : gates.length === 0;
  if (failed && !isUnsolved) return { stage: 'gate', reason: failed.reason ?? failed.gate };
  if (!isUnsolved || spec.unsolved === 'keep') return null;
  return { stage: 'unsolved', reason: 'it has no solution that was given, or taught and checked' };
}

function nothingLeft({ spec }: GatheredRecord, excluded: readonly Exclusion[]): InvalidSpec {
  const reasons = new Map<string, number>();
  for (const { reason } of excluded) reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  const [often] = [...reasons].sort(([, a], [, b]) => b - a);
  const problem = `no task is left; ${often?.[1] ?? 0} were left out because: ${often?.[0] ?? 'nothing is known'}`;
  const fix = 'correct the environment or the solutions, and give a new version';
  return new InvalidSpec([{ path: 'tasks', problem, fix }], datasetId(spec));
}

type Checked = GateRecord & { isTaught: boolean };

/** The gate records by task, in the order of the file. A task that fails a gate has no records of later gates. */
async function readGates(store: ObjectStore, gathered: GatheredRecord): Promise<Map<string, Checked[]>> {
  const { name, version } = gathered;
  const digest = recordDigest(gathered);
  const solved = await solvedTasks(store, gathered);
  const found = await inParallel(solved, async ({ task: { task_key }, isTaught }) => {
    const own: Checked[] = [];
    for (const gate of gateNames) {
      const key = gateKey(name, version, taskName(task_key), gate);
      const record = await readRecord(store, key, 'gate');
      // This try was recorded after the gates had been played, so it does not count.
      if (record === null && isTaught) return [];
      if (record === null) throw new UnreadableRecord(key, 'it is not in the store');
      if (record.gathered !== digest)
        throw new UnreadableRecord(
          key,
          `it names the gathered record ${record.gathered}, but gathered.json is ${digest}`,
        );
      own.push({ ...record, isTaught });
      if (!record.passed) break;
    }
    return own;
  });
  return new Map(found.flatMap((own) => (own[0] ? [[own[0].task_key, own] as const] : [])));
}

/** The demonstrations without those of tasks that are held out or left out: nobody who wrote them could know the sides. */
function trainedOn(
  given: readonly Demonstration[],
  tasks: readonly Task[],
  sides: readonly Task[],
): Demonstration[] {
  const known = new Set(tasks.map(({ task_key }) => task_key));
  const trained = new Set(sides.flatMap(({ task_key, split }) => (split === 'train' ? [task_key] : [])));
  return given.filter(
    ({ task_key }) => task_key === undefined || !known.has(task_key) || trained.has(task_key),
  );
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

/** Also of tasks that were left out: their side must not change when they come back. */
async function sidesIn(store: ObjectStore, id: string): Promise<Map<string, Task['split']>> {
  const manifest = await requirePrepared(store, id, 'frozen', 'the dataset spec');
  const tasks = await readDatasetItems<Task>(store, manifest, 'tasks.jsonl');
  const excluded = await readDatasetItems<Exclusion>(store, manifest, 'excluded.jsonl');
  const sides = [...excluded, ...tasks].flatMap(({ task_key, split }) =>
    split ? [[task_key, split] as const] : [],
  );
  return new Map(sides);
}
