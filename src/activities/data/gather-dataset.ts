// gatherDataset: reads a dataset's files once. From then on its version stands for these bytes and this spec.
import type { GatheredDataset } from '../data-contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { readSource } from '../../data/data-source.js';
import { refuseSilentServers, refuseUnplayable } from '../../data/environment-check.js';
import { jsonItems, writeAsset } from '../../data/dataset-writer.js';
import { gatherTasks } from '../../data/preparation/preparation.js';
import { refuseSilentTeacher } from '../../data/preparation/teacher/chat-endpoint.js';
import { requirePrepared } from '../../data/prepared-dataset.js';
import { toolListsOf } from '../../data/tool-lists.js';
import { datasetId, type DatasetSpec, parseDatasetSpec, type TeacherSpec } from '../../spec/dataset-spec.js';
import { environmentOf, isOfStack } from '../../spec/environments/environment-schema.js';
import { fixOfUnlisted } from '../../spec/environments/environment-problems.js';
import { InvalidSpec } from '../../spec/invalid-spec.js';
import type { GatheredRecord } from '../../spec/records/preparation-records.js';
import type { Task } from '../../spec/records/task.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import { gatheredKey } from '../../store/record-keys.js';
import { canonicalText, differences } from '../../store/records/canonical.js';
import { adoptOrCreate, readRecord } from '../../store/records/records.js';
import { stoppingPoint } from '../attempt/stopping-point.js';

export function gatherDataset(
  deps: Pick<OrchestratorDeps, 'store'>,
  input: { spec: unknown },
  signal: AbortSignal,
): Promise<GatheredDataset> {
  return gathered(deps, input, signal).catch(asDatasetProblem);
}

async function gathered(
  { store }: Pick<OrchestratorDeps, 'store'>,
  input: { spec: unknown },
  signal: AbortSignal,
): Promise<GatheredDataset> {
  const spec = parseDatasetSpec(input.spec);
  const key = gatheredKey(spec.name, spec.version);
  const existing = await readRecord(store, key, 'gathered');
  if (existing) {
    refuseOtherSpec(existing, spec);
    await refuseOtherBytes(existing, spec);
    return answer(existing);
  }
  if (spec.frozen !== undefined) await requirePrepared(store, spec.frozen, 'frozen', 'the dataset spec');
  const { examples: lines, shown, files, ...read } = await gatherTasks(store.address, spec, signal);
  const examples = jsonItems<Task>(lines);
  // Demonstrations may be of an environment without tasks; `toolListsOf` refuses them.
  const asked = [...new Set([...examples.map(({ env_key }) => env_key), ...shown])];
  refuseMissingServers(spec, asked);
  const played = new Set(asked.map((envKey) => environmentOf(spec.environments, envKey)));
  const isPlayed = (environment: EnvironmentSpec): boolean => played.has(environment);
  await Promise.all([
    refuseSilentServers(spec.environments, signal, isPlayed),
    spec.teacher && refuseSilentTeacher(spec.teacher, signal),
  ]);
  await refuseUnplayable(spec.environments, signal, examples, isPlayed);
  const tools = canonicalText(await toolListsOf(asked, examples, spec.environments, { signal }));
  const record: GatheredRecord = {
    schema: 'longhaul.gathered/1',
    name: spec.name,
    version: spec.version,
    spec,
    ...read,
    files: { ...files, tools: await writeAsset(store, tools) },
    observed: { at: new Date().toISOString() },
  };
  await stoppingPoint('dataset-gathered');
  const { record: stored } = await adoptOrCreate(store, key, 'gathered', record);
  refuseOtherSpec(stored, spec);
  return answer(stored);
}

const answer = (record: GatheredRecord): GatheredDataset => ({
  tasks: record.tasks,
  solved: record.solved,
  has_teacher: record.spec.teacher !== undefined,
});

/** Checks that are shared with the start of a run mention the run spec; here they must mention the dataset spec. */
function asDatasetProblem(error: unknown): never {
  throw error instanceof InvalidSpec && error.file === undefined
    ? new InvalidSpec(error.problems, 'the dataset spec')
    : error;
}

/** The parts of a spec that must not change. Addresses of files and servers, and the teacher's budget, may differ: the files' bytes are compared. */
function comparable({ parallel: _parallel, teacher, environments, ...spec }: DatasetSpec): unknown {
  const paths = {
    tasks: '',
    ...(spec.demonstrations ? { demonstrations: '' } : {}),
    ...(spec.solutions ? { solutions: '' } : {}),
  };
  const {
    url: _endpoint,
    api_key_env: _key,
    max_tokens: _tokens,
    max_usd: _usd,
    usd_per_million: _price,
    ...asked
  } = teacher ?? ({} as Partial<TeacherSpec>);
  return {
    ...spec,
    ...paths,
    ...(teacher ? { teacher: asked } : {}),
    environments: environments.map(({ url: _url, ...environment }) => environment),
  };
}

function refuseOtherSpec({ spec: stored }: GatheredRecord, spec: DatasetSpec): void {
  const found = differences(comparable(stored), comparable(spec));
  if (found.length > 0) throw otherVersion(spec, `from another spec; these keys differ: ${found.join('; ')}`);
}

/** Throws if a file has other bytes now. A file that can no longer be read counts as unchanged. */
async function refuseOtherBytes({ sources }: GatheredRecord, spec: DatasetSpec): Promise<void> {
  const paths = [spec.tasks, spec.demonstrations, spec.solutions].filter((path) => path !== undefined);
  for (const [index, path] of paths.entries()) {
    const now = await readSource(path, () => undefined).catch(() => null);
    if (now !== null && now.sha256 !== sources[index]?.sha256)
      throw otherVersion(spec, `from other bytes: ${path} has the sha256 ${now.sha256} now`);
  }
}

function otherVersion(spec: DatasetSpec, from: string): InvalidSpec {
  const problem = `${datasetId(spec)} was begun ${from}`;
  return new InvalidSpec([{ path: 'version', problem, fix: 'give a new version' }], 'the dataset spec');
}

function refuseMissingServers({ environments }: DatasetSpec, asked: readonly string[]): void {
  const problems = asked.flatMap((envKey) => {
    const environment = environmentOf(environments, envKey);
    if (environment === undefined)
      return [
        {
          path: 'environments',
          problem: `solutions or demonstrations need the environment "${envKey}", which is not listed`,
          fix: fixOfUnlisted(envKey),
        },
      ];
    if (!isOfStack(environment)) return [];
    return [
      {
        path: `environments[${environments.indexOf(environment)}].url`,
        problem: 'is missing, so its tasks cannot be played',
        fix: 'give the address of its server',
      },
    ];
  });
  if (problems.length > 0) throw new InvalidSpec(problems, 'the dataset spec');
}
