// Starts the parts of preparing a dataset on a thread of their own: they read and write whole files.
import { startThread } from '../../base/worker-thread.js';
import type { DatasetSpec } from '../../spec/dataset-spec.js';
import { InvalidSpec } from '../../spec/invalid-spec.js';
import type { GatheredRecord } from '../../spec/records/preparation-records.js';
import type { DatasetReference } from '../../spec/records/run-records.js';
import type { Gathered } from './gathering.js';
import type { PreparationCall } from './preparation-thread.js';

const entry = new URL('./preparation-thread.js', import.meta.url);
const deadlineMs = 30 * 60_000;

/** `store`: address of the store. Throws `InvalidSpec` if a file is not usable. */
export function gatherTasks(store: string, spec: DatasetSpec, signal?: AbortSignal): Promise<Gathered> {
  return onThread<Gathered>({ store, gather: spec }, signal);
}

/** Throws `InvalidSpec` if the dataset whose split is frozen is not there. */
export function finishDataset(
  store: string,
  gathered: GatheredRecord,
  signal?: AbortSignal,
): Promise<DatasetReference> {
  return onThread<DatasetReference>({ store, finish: gathered }, signal);
}

async function onThread<Output>(call: PreparationCall, signal: AbortSignal | undefined): Promise<Output> {
  const thread = startThread<PreparationCall, Output>(entry, { deadlineMs, signal });
  try {
    return await thread.call(call);
  } catch (error) {
    throw asInvalidSpec(error as Error);
  } finally {
    await thread.end();
  }
}

/** An error that came from a thread has its name and its message left. */
function asInvalidSpec(error: Error): Error {
  if (error.name !== 'BadDataFile') return error;
  return new InvalidSpec([{ path: '', problem: error.message, fix: '' }], 'the data');
}
