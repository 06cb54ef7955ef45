// finishDataset: stores the dataset that follows from what was gathered and from the gates.
import type { PreparedDataset } from '../data-contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { datasetWarnings } from '../../data/dataset-warnings.js';
import { readDatasetItems } from '../../data/prepared-dataset.js';
import { finishDataset as finishOnThread } from '../../data/preparation/preparation.js';
import type { Exclusion } from '../../data/task-selection.js';
import { untaughtReasons } from '../../data/preparation/solved-tasks.js';
import { datasetId, parseDatasetSpec } from '../../spec/dataset-spec.js';
import type { Task } from '../../spec/records/task.js';
import { datasetManifestKey, gatheredKey } from '../../store/record-keys.js';
import { readRecord, requireRecord } from '../../store/records/records.js';

/** The result of a workflow is small. */
const shownReasons = 12;

export async function finishDataset(
  { store }: Pick<OrchestratorDeps, 'store'>,
  input: { spec: unknown },
  signal: AbortSignal,
): Promise<PreparedDataset> {
  const { name, version } = parseDatasetSpec(input.spec);
  const key = datasetManifestKey(name, version);
  const gathered = await requireRecord(store, gatheredKey(name, version), 'gathered');
  if ((await readRecord(store, key, 'dataset')) === null) {
    await finishOnThread(store.address, gathered, signal);
  }
  const manifest = await requireRecord(store, key, 'dataset');
  const { train_tasks, held_out_tasks, demonstrations, prepared } = manifest;
  const dataset = datasetId({ name, version });
  const warnings = datasetWarnings(await readDatasetItems<Task>(store, manifest, 'tasks.jsonl'));
  const untaught = Object.entries(await untaughtReasons(store, gathered)).slice(0, shownReasons);
  const failed = failedReasons(
    prepared ? await readDatasetItems<Exclusion>(store, manifest, 'excluded.jsonl') : [],
  );
  return {
    ...{ dataset, train_tasks, held_out_tasks, demonstrations, excluded: prepared?.excluded ?? {} },
    ...(failed.size > 0 ? { failed: Object.fromEntries([...failed].slice(0, shownReasons)) } : {}),
    ...(untaught.length > 0 ? { untaught: Object.fromEntries(untaught) } : {}),
    ...(warnings.length > 0 ? { warnings } : {}),
  };
}

/** Tasks that failed a check, by the reason; the most frequent first. */
function failedReasons(excluded: readonly Exclusion[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { stage, reason } of excluded)
    if (stage === 'gate') counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return new Map([...counts].sort(([, a], [, b]) => b - a));
}
