// Checks a run's checkpoints against its chain (R31): every byte by sha256, every state against the update that left it.
import type { Digest, RunRecord } from '../spec/records.js';
import type { AuditReport } from './audit-report.js';
import { homeOfStep, listCheckpoints, verifyCheckpoint } from './checkpoints.js';
import { checkpointManifestKey, updateKey } from './layout.js';
import type { ObjectStore } from './object-store.js';

/** `states[step]` is the chain's state after `step`; null where it is not known, none for a step the audit did not find. */
export async function auditCheckpoints(
  store: ObjectStore,
  record: RunRecord,
  states: readonly (Digest | null)[],
  report: AuditReport,
): Promise<void> {
  for (const step of await listCheckpoints(store, record)) {
    const home = await homeOfStep(store, record, step);
    const key = checkpointManifestKey(home, step);
    const state = states[step];
    if (state === undefined) {
      // A run that goes on commits a step before it saves it: what is committed by now is newer than this audit.
      if (await store.head(updateKey(home.run, step))) continue;
      report.add('R31', key, `it is of step ${step}, which is not committed`);
    }
    report.checkpoints += 1;
    try {
      const manifest = await verifyCheckpoint(store, record, step);
      if (typeof state === 'string' && manifest.state !== state)
        report.add('R31', key, `it holds state ${manifest.state}, the chain says ${state}`);
    } catch (error) {
      if (!(error instanceof Error) || !storedErrors.includes(error.name)) throw error;
      report.add('R31', key, error.message);
    }
  }
}

const storedErrors = ['CorruptCheckpoint', 'UnreadableRecord', 'NewerSchema'];
