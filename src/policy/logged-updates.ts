// Reads logged updates for the engine: their records, and their batches as files on the node's disk. During a replay the next update is
// read while the engine computes the current one, so reading adds no time.
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Digest } from '../spec/records/parts.js';
import type { PlanRecord } from '../spec/records/plan.js';
import type { UpdateRecord } from '../spec/records/update.js';
import { sha256File } from '../base/sha256.js';
import { batchKey } from '../store/record-keys.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { openRunView } from '../store/runs/quarantine.js';
import { readPlan, readUpdate } from '../store/runs/run-records.js';
import { UnreadableRecord } from '../store/record-errors.js';
import { fetchBatchFile } from '../store/runs/stored-batch.js';

interface LoggedUpdate {
  step: number;
  identity: UpdateRecord['identity'];
  /** Null if the step applied nothing. */
  input: { plan: PlanRecord; batchPath: string } | null;
}

/**
 * Yields the updates `from`…`to` in order; reads each update while the caller works on the update before. A batch's file is removed when
 * the caller asks for the next update or stops. Throws `UnreadableRecord` if a record or a batch is missing or was changed.
 */
export async function* loggedUpdates(
  store: ObjectStore,
  folder: string,
  run: string,
  { from, to }: { from: number; to: number },
): AsyncGenerator<LoggedUpdate, void> {
  let coming = from <= to ? readLogged(store, folder, run, from) : null;
  try {
    for (let step = from; coming !== null; step++) {
      const logged: LoggedUpdate = await coming;
      coming = step < to ? readLogged(store, folder, run, step + 1) : null;
      // Without this, a failed read would be an unhandled rejection. The error is thrown when the caller asks for this step.
      coming?.catch(() => undefined);
      try {
        yield logged;
      } finally {
        await discard(logged);
      }
    }
  } finally {
    if (coming !== null) await coming.then(discard, () => undefined);
  }
}

/**
 * Fetches the step's batch into `{folder}/batches` and returns the path of the file; the caller removes the file. `run`: the run whose folder
 * holds the step.
 */
export async function fetchBatch(
  store: ObjectStore,
  folder: string,
  { run, step, batch }: { run: string; step: number; batch: Digest },
): Promise<string> {
  const batches = join(folder, 'batches');
  await mkdir(batches, { recursive: true });
  const path = join(batches, `${batch}.safetensors`);
  const key = batchKey(run, step);
  if (!(await fetchBatchFile(store, run, step, path)))
    throw new UnreadableRecord(key, 'it is not in the store, but its update is recorded or under way');
  const { sha256 } = await sha256File(path);
  if (sha256 === batch) return path;
  await rm(path, { force: true });
  throw new UnreadableRecord(
    key,
    `it was changed: its sha256 is ${sha256}, but ${batch} was recorded for this step`,
  );
}

async function readLogged(
  store: ObjectStore,
  folder: string,
  run: string,
  step: number,
): Promise<LoggedUpdate> {
  const { identity } = await readUpdate(store, run, step);
  if (identity.applied !== true) return { step, identity, input: null };
  // A new view for each step, because a person may quarantine a record during a long replay.
  const view = await openRunView(store, run);
  const [plan, batchPath] = await Promise.all([readPlan(view, identity), fetchBatch(view, folder, identity)]);
  return { step, identity, input: { plan, batchPath } };
}

async function discard({ input }: LoggedUpdate): Promise<void> {
  if (input) await rm(input.batchPath, { force: true });
}
