// Checks the trainer's log-probs of a step's batch: they are part of what a Tinker server was sent (R34).
import type { PlanRecord } from '../../spec/records/plan.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { decodeBatchFile } from '../files/batch-file.js';
import { batchKey, rescoredKey, updateKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { UnreadableRecord } from '../record-errors.js';
import { readRescored } from '../runs/rescored-logprobs.js';
import { readBatch } from '../runs/stored-batch.js';
import { AuditReport, readable } from './audit-report.js';
import type { Chain } from './chain.js';

/** Reports what is wrong with the rescored log-probs that a committed step names. */
export async function checkRescored(
  { store, report }: Chain,
  timeline: string,
  { identity }: UpdateRecord,
  plan: PlanRecord | null,
): Promise<void> {
  const { step, rescored: recorded, applied, batch, numerics } = identity;
  const isServed = applied === true && numerics.backend === 'tinker';
  if (recorded !== undefined && (!isServed || (plan && plan.loss.tis_cap === undefined)))
    return report.add(
      'R34',
      updateKey(timeline, step),
      'it names rescored log-probs, but the step needs none',
    );
  if (!isServed || recorded === undefined) return;
  const key = rescoredKey(timeline, step, batch);
  if (!(await store.head(key))) {
    report.add('R34', key, 'the rescored log-probs are missing');
    return;
  }
  const targets = await targetsOf(store, timeline, step);
  try {
    await readRescored(store, { run: timeline, step, batch }, targets, recorded);
  } catch (error) {
    if (!(error instanceof UnreadableRecord)) throw error;
    report.add('R34', key, error.problem);
  }
}

/** Null if the batch cannot be read: `checkBatch` reports that. */
async function targetsOf(store: ObjectStore, timeline: string, step: number): Promise<number | null> {
  const key = batchKey(timeline, step);
  return readable(new AuditReport(timeline), key, async () => {
    const bytes = await readBatch(store, timeline, step);
    return bytes && decodeBatchFile(bytes, key).arrays.target_rows.length;
  });
}
