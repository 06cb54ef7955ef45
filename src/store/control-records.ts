// What people have asked of a run, in order (R21). Every activity of a run needs all of it, and a long run has much of it.
import type { ControlRecord } from '../spec/records.js';
import { controlFolder } from './layout.js';
import type { ObjectStore } from './object-store.js';
import { readSequence } from './records.js';

/** Records never change (R1), so that each is read once per store; the folder is listed each time, for what others write. */
const recordsRead = new WeakMap<ObjectStore, Map<string, readonly ControlRecord[]>>();

export async function readControl(store: ObjectStore, run: string): Promise<readonly ControlRecord[]> {
  const runs = recordsRead.get(store) ?? new Map<string, readonly ControlRecord[]>();
  recordsRead.set(store, runs);
  const records = await readSequence(store, controlFolder(run), 'control', runs.get(run));
  runs.set(run, records);
  return records;
}
