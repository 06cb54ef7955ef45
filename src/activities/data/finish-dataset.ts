// finishDataset: stores the dataset that follows from what was gathered and from the gates.
import type { PreparedDataset } from '../data-contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { finishDataset as finishOnThread } from '../../data/preparation/preparation.js';
import { datasetId, parseDatasetSpec } from '../../spec/dataset-spec.js';
import { datasetManifestKey, gatheredKey } from '../../store/objects/layout.js';
import { readRecord, requireRecord } from '../../store/records/records.js';

export async function finishDataset(
  { store }: Pick<OrchestratorDeps, 'store'>,
  input: { spec: unknown },
  signal: AbortSignal,
): Promise<PreparedDataset> {
  const { name, version } = parseDatasetSpec(input.spec);
  const key = datasetManifestKey(name, version);
  if ((await readRecord(store, key, 'dataset')) === null) {
    const gathered = await requireRecord(store, gatheredKey(name, version), 'gathered');
    await finishOnThread(store.address, gathered, signal);
  }
  const { train_tasks, held_out_tasks, demonstrations, prepared } = await requireRecord(
    store,
    key,
    'dataset',
  );
  const dataset = datasetId({ name, version });
  return { dataset, train_tasks, held_out_tasks, demonstrations, excluded: prepared?.excluded ?? {} };
}
