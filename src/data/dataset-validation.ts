// Checks that a run's data contains everything that its spec asks for.
import { environmentOf } from '../spec/environments/environment-schema.js';
import { fixOfUnlisted } from '../spec/environments/environment-problems.js';
import { recordDigest } from '../store/records/canonical.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { recordedToolFormat } from '../episode/tool-formats/tool-format.js';
import { DatasetCache } from './dataset-cache.js';
import { unwritableDemonstrations } from './demonstration-format.js';
import { requirePrepared } from './prepared-dataset.js';
import type { RunRecord } from '../spec/records/run-records.js';
import { InvalidSpec, type SpecProblem } from '../spec/invalid-spec.js';
import type { RunSpec } from '../spec/run-spec.js';
import { canFillStep, shareProblem } from '../spec/trainer-schema.js';
import type { Task } from '../spec/records/task.js';
import { EnvironmentError } from '../environments/environment.js';
import { isAway } from './data-source.js';
import { type DataFiles, readDataFiles } from './run-dataset.js';
import { BadDataFile } from './task-file.js';

/** Throws `InvalidSpec`, which lists every problem. */
export async function refuseImpossibleData(datasets: DatasetCache, record: RunRecord): Promise<void> {
  const dataset = await datasets.load(record.dataset);
  refuseData(record.spec, { tasks: dataset.tasks, kinds: [...dataset.demonstrationsByKind.keys()] });
  if (record.spec.warm_start.length === 0) return;
  const problems = unwritableDemonstrations(record.spec, recordedToolFormat(record.tool_parser), dataset);
  if (problems.length > 0) throw new InvalidSpec(problems);
}

/** Does the same check on the prepared dataset that a spec names, before a run exists. Throws `InvalidSpec`. */
export async function checkedPrepared(store: ObjectStore, spec: RunSpec, source: string): Promise<Task[]> {
  const manifest = await requirePrepared(store, source, 'data.source');
  const { name, version } = manifest;
  const reference = { name, version, digest: recordDigest(manifest) };
  const { tasks, demonstrationsByKind } = await new DatasetCache(store).load(reference);
  refuseData(spec, { tasks, kinds: [...demonstrationsByKind.keys()] });
  return [...tasks];
}

const startServer =
  "start that server; the example's: longhaul up --environments 'node dist/examples/apps/server/main.js'";

/** Does the same check on the files that a spec names, before a run stores them, and returns what is in them. Throws `InvalidSpec`. */
export async function refuseBadFiles(spec: RunSpec): Promise<DataFiles | null> {
  if (spec.data.tasks === undefined) return null;
  const files = await readDataFiles(spec.data).catch((error: unknown) => {
    if (!(error instanceof BadDataFile || isAway(error))) throw error;
    const isShown = error instanceof BadDataFile && error.file === spec.data.demonstrations;
    const path = isShown ? 'data.demonstrations' : 'data.tasks';
    throw new InvalidSpec([
      { path, problem: error.message, fix: error instanceof EnvironmentError ? startServer : '' },
    ]);
  });
  const kinds = new Set(files.demonstrations.map(({ kind }) => kind));
  const shown = new Set(files.demonstrations.flatMap(({ env_key }) => env_key ?? []));
  refuseData(spec, { tasks: files.tasks, kinds: [...kinds], shown: [...shown] });
  return files;
}

/** `shown`: environments that demonstrations name, if their tools are not listed yet. */
function refuseData(
  spec: RunSpec,
  data: { tasks: readonly Task[]; kinds: readonly string[]; shown?: readonly string[] },
): void {
  const problems = [];
  const heldOut = data.tasks.filter((task) => task.split === 'held_out').length;
  const train = data.tasks.length - heldOut;
  const wanted = Math.max(spec.data.eval_tasks, spec.data.final_eval_tasks);
  if (heldOut < wanted) {
    problems.push({
      path: 'data',
      problem: `the spec asks for ${wanted} evaluation ${wanted === 1 ? 'task' : 'tasks'}, but the data has only ${heldOut} held-out ${heldOut === 1 ? 'task' : 'tasks'}`,
      fix: spec.data.source
        ? 'lower eval_tasks and final_eval_tasks, or prepare a version with more held-out tasks'
        : spec.data.split
          ? 'lower eval_tasks and final_eval_tasks, or raise data.split.max_held_out (an environment has at most 20)'
          : 'lower eval_tasks and final_eval_tasks, or add tasks with "split": "held_out"',
    });
  }
  if (train === 0)
    problems.push({
      path: 'data',
      problem: 'the data has no training task',
      fix: spec.data.source
        ? 'prepare a version with training tasks'
        : spec.data.split
          ? 'raise data.split.max_env_share: it is the share of all tasks that one environment keeps'
          : 'add tasks with "split": "train"',
    });
  const named = new Map([
    ...(data.shown ?? []).map((envKey) => [envKey, 'demonstrations'] as const),
    ...data.tasks.map(({ env_key }) => [env_key, 'tasks'] as const),
  ]);
  for (const [envKey, who] of named) {
    if (!environmentOf(spec.environments, envKey))
      problems.push({
        path: 'environments',
        problem: `${who} name the environment "${envKey}", which is not listed`,
        fix: fixOfUnlisted(envKey),
      });
  }
  problems.push(...curriculumProblems(spec, data.tasks));
  for (const [index, phase] of spec.warm_start.entries()) {
    if (!data.kinds.includes(phase.demonstrations)) {
      problems.push({
        path: `warm_start[${index}].demonstrations`,
        problem: `the data has no demonstration of kind "${phase.demonstrations}"`,
        fix: `kinds in the data: ${data.kinds.join(', ') || 'none'}`,
      });
    }
  }
  if (problems.length > 0) throw new InvalidSpec(problems);
}

/** What `trainer.curriculum` and `trainer.balance` need of the training tasks. */
function curriculumProblems({ trainer }: RunSpec, tasks: readonly Task[]): SpecProblem[] {
  const { curriculum, balance } = trainer;
  const train = tasks.filter(({ split }) => split === 'train');
  const trained = new Set(train.map(({ env_key }) => env_key));
  const problems: SpecProblem[] = Object.keys(curriculum?.weights ?? {})
    .filter((key) => !trained.has(key))
    .map((key) => ({
      path: `trainer.curriculum.weights.${key}`,
      problem: 'the data has no training task of this environment',
      fix: `environments with training tasks: ${[...trained].sort().join(', ')}`,
    }));
  const by = curriculum?.by ?? 'template';
  const environmentsOf = new Map<string, Set<string>>();
  for (const { template, env_key } of train) {
    const pool = by === 'env' ? env_key : template;
    environmentsOf.set(pool, (environmentsOf.get(pool) ?? new Set()).add(env_key));
  }
  const share = curriculum?.max_share ?? 1;
  const pools = environmentsOf.size;
  if (pools > 0 && !canFillStep(share, pools)) problems.push(shareProblem(share, pools, by));
  const mixed = [...environmentsOf].find(([, envs]) => envs.size > 1);
  if (mixed && (balance !== undefined || curriculum?.weights !== undefined))
    problems.push({
      path: balance === undefined ? 'trainer.curriculum.weights' : 'trainer.balance',
      problem: `is by environment, but the template "${mixed[0]}" has tasks of ${[...mixed[1]].sort().join(' and ')}`,
      fix: 'give each environment templates of its own, or set curriculum.by: env',
    });
  return problems;
}
