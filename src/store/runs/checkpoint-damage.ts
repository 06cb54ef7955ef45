// Finds damage of a stored checkpoint from its manifest and the sizes of its files. Only a download compares the bytes.
import type { Digest } from '../../spec/records/parts.js';
import { checkpointHome } from './checkpoints.js';
import { checkpointFileKey, checkpointManifestKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readRecord } from '../records/records.js';
import { readRunIfAny, timelineOf } from './run-records.js';

/** Says what is wrong with the run's checkpoint of a step; null if nothing is. `state`: the digest in the run's records. */
export async function checkpointDamage(
  store: ObjectStore,
  { run, step, state }: { run: string; step: number; state: Digest },
): Promise<string | null> {
  const timeline = await timelineOf(store, run, step);
  const record = await readRunIfAny(store, timeline);
  if (record === null) return `the record of ${timeline}, to which it belongs, is missing`;
  const home = checkpointHome(record);
  try {
    const manifest = await readRecord(store, checkpointManifestKey(home, step), 'checkpoint');
    if (manifest === null) return 'its manifest is gone';
    if (manifest.run !== timeline || manifest.step !== step)
      return `its manifest says step ${manifest.step} of ${manifest.run}`;
    if (manifest.state !== state)
      return `its manifest says state ${manifest.state.slice(0, 12)}…, but the run’s records say ${state.slice(0, 12)}…`;
    for (const { path, size } of manifest.files) {
      const info = await store.head(checkpointFileKey(home, step, path));
      if (info === null) return `its file ${path} is missing`;
      if (info.size !== size) return `its file ${path} has ${info.size} bytes, but its manifest says ${size}`;
    }
    return null;
  } catch (error) {
    return `its manifest cannot be read: ${unreadable(error)}`;
  }
}

const storedErrors = ['CorruptCheckpoint', 'UnreadableRecord', 'OlderSchema', 'NewerSchema'];

/** Message of an error that shows damaged content. Rethrows any other error: a store that does not answer is not damaged. */
export function unreadable(error: unknown): string {
  if (error instanceof Error && storedErrors.includes(error.name)) return error.message;
  throw error;
}
