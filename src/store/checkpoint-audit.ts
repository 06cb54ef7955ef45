// Checks a run's checkpoints against its chain (R31): every byte by sha256, every state against the update that left it.
import type { Digest, RunRecord } from '../spec/records.js';
import type { AuditReport } from './audit-report.js';
import { homeOfStep, listCheckpoints, verifyCheckpoint } from './checkpoints.js';
import { checkpointManifestKey, updateKey } from './layout.js';
import type { ObjectStore } from './object-store.js';
import { namedByCollections, type Sequences } from './sequence-audit.js';

/**
 * `states[step]` is the chain's state after `step`; null where it is not known, none for a step the audit did not find.
 * `collections`: what collections have named, null where that is not known.
 */
export async function auditCheckpoints(
  store: ObjectStore,
  record: RunRecord,
  states: readonly (Digest | null)[],
  collections: Sequences['collections'],
  report: AuditReport,
): Promise<void> {
  const stored = await listCheckpoints(store, record);
  const gone = [...(collections?.checkpoints ?? [])].filter((step) => !stored.includes(step));
  report.collected.checkpoints = gone.sort((a, b) => a - b);
  for (const step of stored) {
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
      // A collection that goes on deletes the manifest first.
      const named = async (): Promise<boolean> =>
        collections?.checkpoints.has(step) === true ||
        (await namedByCollections(store, home.run)).checkpoints.has(step);
      if (!(await store.head(key)) && (await named())) {
        report.checkpoints -= 1;
        report.collected.checkpoints.push(step);
        continue;
      }
      report.add('R31', key, error.message);
    }
  }
}

const storedErrors = ['CorruptCheckpoint', 'UnreadableRecord', 'NewerSchema'];
