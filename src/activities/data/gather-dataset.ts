// gatherDataset: reads a dataset's files once. From then on its version stands for these bytes and this spec.
import type { GatheredDataset } from '../data-contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { readSource } from '../../data/data-source.js';
import { refuseUnplayable } from '../../data/environment-check.js';
import { writeAsset } from '../../data/dataset-writer.js';
import { gatherTasks } from '../../data/preparation.js';
import { requirePrepared } from '../../data/prepared-dataset.js';
import { toolListsOf } from '../../data/tool-lists.js';
import { datasetId, type DatasetSpec, parseDatasetSpec } from '../../spec/dataset-spec.js';
import { InvalidSpec } from '../../spec/invalid-spec.js';
import type { GatheredRecord } from '../../spec/records/manifests.js';
import { gatheredKey } from '../../store/objects/layout.js';
import { canonicalText, differences } from '../../store/records/canonical.js';
import { adoptOrCreate, readRecord } from '../../store/records/records.js';
import { stoppingPoint } from '../attempt/stopping-point.js';

export async function gatherDataset(
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
  if (spec.frozen !== undefined) await requirePrepared(store, spec.frozen, 'frozen');
  const { examples, files, ...read } = await gatherTasks(store.address, spec, signal);
  const asked = [...new Set(examples.map(({ env_key }) => env_key))];
  refuseMissingServers(spec, asked);
  await refuseUnplayable(
    spec.environments.filter(({ env_key }) => asked.includes(env_key)),
    signal,
  );
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
  dataset: datasetId(record),
  tasks: record.tasks,
  solved: record.solved,
  has_teacher: record.spec.teacher !== undefined,
});

/** Where files and servers are may differ: what they hold is compared. */
function comparable({
  tasks: _tasks,
  demonstrations: _shown,
  solutions: _solutions,
  ...spec
}: DatasetSpec): unknown {
  return { ...spec, environments: spec.environments.map(({ url: _url, ...environment }) => environment) };
}

function refuseOtherSpec({ spec: stored }: GatheredRecord, spec: DatasetSpec): void {
  const found = differences(comparable(stored), comparable(spec));
  if (found.length > 0) throw otherVersion(spec, `another spec: ${found.join('; ')}`);
}

/** A file that cannot be read any more has not changed. */
async function refuseOtherBytes({ sources }: GatheredRecord, spec: DatasetSpec): Promise<void> {
  const paths = [spec.tasks, spec.demonstrations, spec.solutions].filter((path) => path !== undefined);
  for (const [index, path] of paths.entries()) {
    const now = await readSource(path, () => undefined).catch(() => null);
    if (now !== null && now.sha256 !== sources[index]?.sha256)
      throw otherVersion(spec, `other bytes of ${path}: sha256 ${now.sha256}`);
  }
}

function otherVersion(spec: DatasetSpec, from: string): InvalidSpec {
  const problem = `${datasetId(spec)} was begun with something else: now there is ${from}`;
  return new InvalidSpec([{ path: 'version', problem, fix: 'give a new version' }], 'the dataset spec');
}

function refuseMissingServers({ environments }: DatasetSpec, asked: readonly string[]): void {
  const problems = asked.flatMap((envKey) => {
    const index = environments.findIndex(({ env_key }) => env_key === envKey);
    if (index < 0)
      return [
        {
          path: 'environments',
          problem: `solutions or demonstrations need the environment "${envKey}", which is not listed`,
          fix: `add an entry with env_key: ${envKey}`,
        },
      ];
    if (environments[index]?.url !== undefined) return [];
    return [
      {
        path: `environments[${index}].url`,
        problem: 'is missing, so its tasks cannot be played',
        fix: 'give the address of its server',
      },
    ];
  });
  if (problems.length > 0) throw new InvalidSpec(problems, 'the dataset spec');
}
