// Checks a run's checkpoints: every byte by sha256, every state against the update that made it (R31), and that an ended run has a
// checkpoint of its last state (R17).
import type { Digest } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { AuditReport } from './audit-report.js';
import {
  homeOfStep,
  listCollectedManifests,
  listCheckpoints,
  verifyCheckpoint,
} from '../runs/checkpoints.js';
import { checkpointFileKey, checkpointManifestKey, updateKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { isDamage } from '../record-errors.js';
import { namedByCollections, type Sequences } from './sequence-audit.js';

/** Digest of the state in a file of `size` bytes. Throws `BadTensorFile`. */
export type StateDigest = (file: {
  pieces: AsyncIterable<Uint8Array>;
  size: number;
  name: string;
}) => Promise<Digest>;

/**
 * `states[step]`: the chain's state after `step`; null if it is not known, absent for a step that the audit did not find. `collections`:
 * the steps that collections named; null if they are not known. `ended`: the step after which the run ended; null if the run continues.
 */
export async function auditCheckpoints(
  store: ObjectStore,
  record: RunRecord,
  states: readonly (Digest | null)[],
  { collections, ended }: { collections: Sequences['collections']; ended: number | null },
  stateDigest: StateDigest,
  report: AuditReport,
): Promise<void> {
  const stored = await listCheckpoints(store, record);
  const gone = [...(collections?.checkpoints ?? [])].filter((step) => !stored.includes(step));
  report.collected.checkpoints = gone.sort((a, b) => a - b);
  const named = async (run: string, step: number): Promise<boolean> =>
    collections?.checkpoints.has(step) === true ||
    (await namedByCollections(store, run)).checkpoints.has(step);
  report.collected.manifests = await listCollectedManifests(store, record);
  if (ended !== null && !stored.includes(ended) && collections && !(await named(record.run, ended))) {
    const key = checkpointManifestKey(await homeOfStep(store, record, ended), ended);
    report.add('R17', key, 'the run has ended, but its last state has no checkpoint');
  }
  for (const [index, step] of stored.entries()) {
    report.at(`checkpoint ${index + 1} of ${stored.length}`);
    const home = await homeOfStep(store, record, step);
    const key = checkpointManifestKey(home, step);
    const state = states[step];
    if (state === undefined) {
      // A running run commits a step before it saves the state: a step that is committed by now is newer than this audit's chain.
      if (await store.head(updateKey(home.run, step))) continue;
      report.add('R31', key, `it belongs to step ${step}, which is not committed`);
    }
    report.checkpoints += 1;
    try {
      const manifest = await verifyCheckpoint(store, record, step);
      if (typeof state === 'string' && manifest.state !== state)
        report.add('R31', key, `it has state ${manifest.state}, but the chain has ${state}`);
      // A state on a Tinker server is named, not hashed (R32): its file cannot be compared with it.
      const hashed = manifest.numerics.backend === 'tinker' ? [] : manifest.files;
      for (const { path, size } of hashed) {
        const name = checkpointFileKey(home, step, path);
        const pieces = await store.stream(name);
        const held = pieces && (await stateDigest({ pieces, size, name }));
        if (held !== null && held !== manifest.state)
          report.add(
            'R31',
            name,
            `its tensors are those of state ${held}, but its manifest says ${manifest.state}`,
          );
      }
    } catch (error) {
      if (!isDamage(error)) throw error;
      // A running collection may have deleted the checkpoint meanwhile; it deletes the manifest first.
      if (!(await store.head(key)) && (await named(home.run, step))) {
        report.checkpoints -= 1;
        report.collected.checkpoints.push(step);
        continue;
      }
      report.add('R31', key, error.message);
    }
  }
}
