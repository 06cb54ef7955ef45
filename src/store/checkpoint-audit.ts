// Checks a run's checkpoints against its chain (R31): every byte by sha256, every state against the update that left it.
import type { Digest, RunRecord } from '../spec/records.js';
import type { AuditReport } from './audit-report.js';
import { homeOfStep, listCheckpoints, verifyCheckpoint } from './checkpoints.js';
import { checkpointManifestKey } from './layout.js';
import type { ObjectStore } from './object-store.js';

/** `states[step]` is the chain's state after `step`; null where it is not known. */
export async function auditCheckpoints(
  store: ObjectStore,
  record: RunRecord,
  states: readonly (Digest | null)[],
  report: AuditReport,
): Promise<void> {
  for (const step of await listCheckpoints(store, record)) {
    const key = checkpointManifestKey(await homeOfStep(store, record, step), step);
    report.checkpoints += 1;
    try {
      const manifest = await verifyCheckpoint(store, record, step);
      const state = states[step];
      if (state === undefined) report.add('R31', key, `it is of step ${step}, which is not committed`);
      else if (state !== null && manifest.state !== state)
        report.add('R31', key, `it holds state ${manifest.state}, the chain says ${state}`);
    } catch (error) {
      if (!(error instanceof Error) || !storedErrors.includes(error.name)) throw error;
      report.add('R31', key, error.message);
    }
  }
}

const storedErrors = ['CorruptCheckpoint', 'UnreadableRecord', 'NewerSchema'];
