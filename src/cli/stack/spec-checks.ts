// What `longhaul doctor --spec` says of a run spec. It refuses every spec that `longhaul train` would refuse.
import { refuseDifference } from '../../activities/run/open-run.js';
import { keepSecret } from '../../base/known-secrets.js';
import { madeAlready, planFork, timelinesNamed } from '../../activities/run/fork-run.js';
import { checkedPrepared, refuseBadFiles } from '../../data/dataset-validation.js';
import type { DataFiles } from '../../data/run-dataset.js';
import { serverOptionsOf } from '../../environments/openenv/server-options.js';
import { type CheckedModel, checkedModel } from '../../policy/model-assets.js';
import type { Task } from '../../spec/records/task.js';
import { environmentOf } from '../../spec/environments/environment-schema.js';
import type { EnvironmentSpec, RunSpec } from '../../spec/run-spec.js';
import { readSpecFile } from '../../spec/spec-input.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readRunIfAny } from '../../store/runs/run-records.js';
import { trainingTasks } from '../../report/format.js';
import { openExistingStore, storeFolderProblem } from '../output.js';
import { check, type CheckResult, probeEnvironments } from './doctor-checks.js';
import { demonstrationsText } from './demonstration-checks.js';
import { fleetText, playedEnvironment } from './environment-checks.js';

interface SpecPlace {
  /** File of the spec. */
  path: string;
  /** Address of the store in which the run would be. */
  store: string;
  /** Address of the embedded stack's environment server; null without a stack. */
  stackServer: string | null;
  /** Its grading token, which the stack's nodes use there. */
  stackToken?: string;
  /** Command that starts a stack. */
  start: string;
}

export interface SoundSpec {
  spec: RunSpec;
  /** The data files, read only once, because they may be large and in a bucket. Null if the spec names none. */
  files: DataFiles | null;
}

/** Resolves to an Error if the spec or its files are refused. */
export function soundSpec(path: string): Promise<SoundSpec | Error> {
  return readSpecFile(path)
    .then(async (spec) => ({ spec, files: await refuseBadFiles(spec) }))
    .catch((error: Error) => error);
}

export function specChecks(
  sound: SoundSpec | Error,
  { path, store, stackServer, stackToken, start }: SpecPlace,
): Promise<CheckResult>[] {
  if (sound instanceof Error) return [Promise.resolve({ check: 'spec', ok: false, detail: sound.message })];
  const { spec } = sound;
  const reading = readTasks(sound, store);
  const model = checkedModel(spec);
  // The checks of spec and model say why these cannot be read.
  const known = reading.catch((): DataFiles => noTasks());
  const tokenizer = model.then(({ loaded }) => loaded.tokenizer).catch(() => null);
  const environments = spec.environments.map((environment) => {
    const { env_key, url, grading_token_env } = environment;
    return check(`environment ${env_key}`, async () => {
      if (environment.kind === 'fleet') return fleetText(environment, spec.environments, await known);
      const server = url ?? stackServer;
      if (server === null)
        throw new Error(`it has no url, and no embedded stack runs: start one with \`${start}\``);
      const own = server === stackServer ? stackToken : undefined;
      const gradingToken = own ?? (grading_token_env && process.env[grading_token_env]);
      if (grading_token_env !== undefined && !gradingToken) {
        throw new Error(
          `the variable ${grading_token_env}, which holds the grading token, is not set here: export it`,
        );
      }
      keepSecret(gradingToken);
      const { headers } = serverOptionsOf(environment);
      const health = await probeEnvironments(server, headers);
      return url === undefined
        ? health
        : playedEnvironment(
            { ...environment, url },
            tasksOf(environment, spec, await known),
            spec,
            await tokenizer,
            gradingToken,
          );
    });
  });
  const format = model.then(
    (found) => found.format,
    () => null,
  );
  // A server may have only one place, and the environments' own checks need it first.
  const played = Promise.all(environments);
  const demonstrations = (): Promise<CheckResult> =>
    check('demonstrations', async () => {
      await played;
      return demonstrationsText(await reading, spec.environments, await format);
    });
  return [
    check('spec', async () => soundText(path, (await reading).tasks)),
    check('model', async () => modelText(await model, spec)),
    check('run', () => runText(spec, store)),
    ...environments,
    ...(spec.data.demonstrations === undefined ? [] : [demonstrations()]),
  ];
}

/** The environment's tasks, as the run assigns them: an entry with `*` gets the tasks of all names without an entry. */
function tasksOf(environment: EnvironmentSpec, { environments }: RunSpec, { tasks }: DataFiles): Task[] {
  return tasks.filter(({ env_key }) => environmentOf(environments, env_key) === environment);
}

const noTasks = (): DataFiles => ({ tasks: [], demonstrations: [], verifiers: new Map() });

/** Reads the tasks. Throws what the start of a run would throw. */
async function readTasks({ spec, files }: SoundSpec, store: string): Promise<DataFiles> {
  const { source } = spec.data;
  if (source === undefined) return files ?? noTasks();
  return { ...noTasks(), tasks: await checkedPrepared(await openExistingStore(store), spec, source) };
}

function soundText(path: string, tasks: readonly Task[]): string {
  if (tasks.length === 0) return `${path} is sound`;
  const heldOut = tasks.filter(({ split }) => split === 'held_out').length;
  return `${path} is sound: ${trainingTasks(tasks.length - heldOut)}, ${heldOut} held out`;
}

function modelText({ folder, loaded, format }: CheckedModel, { generator }: RunSpec): string {
  const { max_sequence_length } = generator;
  const isDropped = loaded.template.dropsThinking();
  return [
    folder === null
      ? 'tokenizer and chat template load'
      : `${folder.path} can be read, and has ${folder.outline.max_position_embeddings} positions for transcripts of up to ${max_sequence_length} tokens`,
    `tool calls are read as ${format.name}`,
    ...(isDropped
      ? ['the template leaves out the thinking of earlier turns, which the model sees in episodes']
      : []),
  ].join('; ');
}

/** Throws if the name belongs to a run with another spec, or if the fork cannot be made. */
async function runText(spec: RunSpec, address: string): Promise<string> {
  const { fork, ...rest } = spec;
  const isThere = (await storeFolderProblem(address)) === null;
  const store = isThere || fork !== undefined ? await openExistingStore(address) : null;
  const run = store && (await runOf(store, rest, fork));
  const record = store && run !== null ? await readRunIfAny(store, run) : null;
  if (record) {
    refuseDifference(record.run, record.spec, rest);
    return `${record.run} would be continued`;
  }
  if (!store || fork === undefined) return `${spec.name} is a new run`;
  const planned = await planFork(store, rest, fork);
  return `${planned.run} is a new run, which continues ${fork.run} after step ${fork.step}`;
}

/** The run that a start would continue; null if it would make one. */
async function runOf(store: ObjectStore, spec: RunSpec, fork: RunSpec['fork']): Promise<string | null> {
  if (fork !== undefined) return madeAlready(store, spec.name, fork);
  return (await timelinesNamed(store, spec.name)).at(-1) ?? null;
}
