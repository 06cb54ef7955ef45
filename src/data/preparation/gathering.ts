// The first part of preparing a dataset: reads its files, and stores what the spec selects of them. All later parts read only what is stored
// here.
import { nearestName } from '../../base/nearest-name.js';
import { environmentOf } from '../../spec/environments/environment-schema.js';
import { fixOfUnlisted } from '../../spec/environments/environment-problems.js';
import type { Digest } from '../../spec/records/parts.js';
import type { GatheredRecord } from '../../spec/records/preparation-records.js';
import type { Task } from '../../spec/records/task.js';
import type { DatasetSpec } from '../../spec/dataset-spec.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readSource, type ReadSource } from '../data-source.js';
import { lines, writeAsset, writeVerifiers } from '../dataset-writer.js';
import { malformedCall } from '../demonstration-format.js';
import { BadDataFile, parseDemonstrations, parseSolutions, TaskRows } from '../task-file.js';
import { type Exclusion, filterTasks, NothingSelected } from '../task-selection.js';

export type Gathered = Pick<GatheredRecord, 'sources' | 'tasks' | 'solved'> & {
  files: Omit<GatheredRecord['files'], 'tools'>;
  /**
   * Some tasks of each environment that has solutions, demonstrations or a teacher, with which its server is asked for its tools. They are lines
   * of JSON, because `LosslessNumber`s would reach the other thread as plain objects.
   */
  examples: string;
  /** Environments of the demonstrations. */
  shown: string[];
};

/** Several, because the first task may be broken. */
const examplesOfEach = 5;

/** Holds the tasks of the file in memory, but not their verifiers. Throws `BadDataFile`. */
export async function gather(store: ObjectStore, spec: DatasetSpec): Promise<Gathered> {
  const sources: ReadSource[] = [];
  const read = await readTasks(store, spec.tasks);
  sources.push(read.source);
  const excluded: Exclusion[] = [];
  const tasks = filtered(read.tasks, spec, excluded);
  refuseUnknownEnvironments(tasks, spec);

  const text = async (path: string | undefined): Promise<string> => {
    const pieces: string[] = [];
    if (path !== undefined) sources.push(await readSource(path, (piece) => void pieces.push(piece)));
    return pieces.join('');
  };
  const demonstrations = parseDemonstrations(
    await text(spec.demonstrations),
    spec.demonstrations ?? '',
    malformedCall,
  );
  const known = new Set(read.tasks.map(({ task_key }) => task_key));
  const kept = new Set(tasks.map(({ task_key }) => task_key));
  const all = parseSolutions(await text(spec.solutions), spec.solutions ?? '');
  refuseUnknownTasks(
    all.map(({ task_key }) => task_key),
    known,
    spec,
  );
  const solutions = all.filter(({ task_key }) => kept.has(task_key));

  const solved = new Set(solutions.map(({ task_key }) => task_key));
  const shown = new Set(demonstrations.map(({ env_key }) => env_key));
  const asked = tasks.filter(
    ({ task_key, env_key }) => spec.teacher !== undefined || solved.has(task_key) || shown.has(env_key),
  );
  return {
    sources,
    tasks: tasks.length,
    solved: solutions.length,
    files: {
      tasks: await writeAsset(store, lines(tasks)),
      excluded: await writeAsset(store, lines(excluded)),
      solutions: await writeAsset(store, lines(solutions)),
      demonstrations: await writeAsset(store, lines(demonstrations)),
    },
    examples: lines(asked.filter(firstOfEnvironment())),
    shown: [...shown].flatMap((envKey) => envKey ?? []),
  };
}

/** True for the first tasks of each environment. */
function firstOfEnvironment(): (task: Task) => boolean {
  const counts = new Map<string, number>();
  return ({ env_key }) => {
    const count = (counts.get(env_key) ?? 0) + 1;
    counts.set(env_key, count);
    return count <= examplesOfEach;
  };
}

async function readTasks(store: ObjectStore, path: string): Promise<{ source: ReadSource; tasks: Task[] }> {
  const stored = new Set<Digest>();
  let verifiers = new Map<Digest, string>();
  const rows = new TaskRows(path, (sha256, code) => {
    if (!stored.has(sha256)) verifiers.set(sha256, code);
  });
  const source = await readSource(path, async (piece) => {
    rows.push(piece);
    await writeVerifiers(store, verifiers);
    for (const sha256 of verifiers.keys()) stored.add(sha256);
    verifiers = new Map();
  });
  const tasks = rows.end();
  // The last row of a file without a line break.
  await writeVerifiers(store, verifiers);
  return { source, tasks };
}

function filtered(tasks: readonly Task[], spec: DatasetSpec, excluded: Exclusion[]): Task[] {
  try {
    return filterTasks(tasks, spec, excluded);
  } catch (error) {
    if (error instanceof NothingSelected) throw new BadDataFile(spec.tasks, [error.message]);
    throw error;
  }
}

/** A file without environments has tasks of any. */
function refuseUnknownEnvironments(tasks: readonly Task[], { environments, tasks: path }: DatasetSpec): void {
  if (environments.length === 0) return;
  const counts = new Map<string, number>();
  for (const { env_key } of tasks)
    if (!environmentOf(environments, env_key)) counts.set(env_key, (counts.get(env_key) ?? 0) + 1);
  const known = environments.map(({ env_key }) => env_key);
  const problems = [...counts].map(([envKey, count]) => {
    const near = nearestName(envKey, known);
    const fix =
      near === null
        ? `in environments, ${fixOfUnlisted(envKey)}; or leave these tasks out with exclude_envs`
        : `did you mean ${near}?`;
    return `${count} ${count === 1 ? 'task names' : 'tasks name'} the environment "${envKey}", which is not listed; ${fix}`;
  });
  if (problems.length > 0) throw new BadDataFile(path, problems);
}

function refuseUnknownTasks(
  keys: readonly string[],
  known: ReadonlySet<string>,
  { solutions = '', tasks }: DatasetSpec,
): void {
  const unknown = keys.filter((key) => !known.has(key));
  if (unknown.length === 0) return;
  throw new BadDataFile(
    solutions,
    unknown.map((key) => `there is no task "${key}" in ${tasks}; remove its solution, or add the task`),
  );
}
