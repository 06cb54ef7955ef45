// Checks the trainer's log-probs of a step's batch: they are part of what a Tinker server was sent (R34).
import { sha256Hex } from '../../base/sha256.js';
import type { PlanRecord } from '../../spec/records/plan.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { decodeBatchFile } from '../files/batch-file.js';
import { batchKey, rescoredKey, updateKey } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { decodeRescored, lengthProblem } from '../runs/rescored-logprobs.js';
import { readBatch } from '../runs/stored-batch.js';
import { AuditReport, readable } from './audit-report.js';
import type { Chain } from './chain.js';

/**
 * Reports what is wrong with the rescored log-probs of a committed step. An update of an earlier version names none; if they are there, they
 * must still be readable and as many as the batch's targets.
 */
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
  if (!isServed) return;
  const key = rescoredKey(timeline, step, batch);
  const bytes = await store.get(key);
  if (!bytes) {
    if (recorded !== undefined) report.add('R34', key, 'the rescored log-probs are missing');
    return;
  }
  if (recorded !== undefined && sha256Hex(bytes) !== recorded)
    return report.add('R34', key, 'its sha256 is not the one in update.json');
  const logprobs = await readable(report, key, () => decodeRescored(bytes, key, batch));
  const targets = await targetsOf(store, timeline, step);
  if (logprobs && targets !== null && logprobs.length !== targets)
    report.add('R34', key, lengthProblem(logprobs.length, targets));
}

/** Null if the batch cannot be read: `checkBatch` reports that. */
async function targetsOf(store: ObjectStore, timeline: string, step: number): Promise<number | null> {
  const key = batchKey(timeline, step);
  return readable(new AuditReport(timeline), key, async () => {
    const bytes = await readBatch(store, timeline, step);
    return bytes && decodeBatchFile(bytes, key).arrays.target_rows.length;
  });
}
