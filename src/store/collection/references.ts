// Finds which states of a run others need (R22, R23): references, runs that continue this run (even without a reference), and open sweeps.
import { inParallel } from '../../base/in-parallel.js';
import { refKey, refsFolder } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { openSweepNeeds } from './open-sweeps.js';
import { requireRecord } from '../records/records.js';
import { listRuns, readRunIfAny, timelinesOf } from '../runs/run-records.js';
import type { RefRecord } from '../../spec/records/run-records.js';
import { UnreadableRecord } from '../record-errors.js';

/** A user needs the run's state after `step`. */
interface Need {
  step: number;
  by: string;
}

/** References to a run, in the order of their users. Throws `UnreadableRecord` if one is unreadable: it may name any step. */
export async function readReferences(store: ObjectStore, run: string): Promise<RefRecord[]> {
  const users = (await store.listFolder(refsFolder(run))).flatMap(
    (name) => /^(.+)\.json$/.exec(name)?.[1] ?? [],
  );
  return inParallel(users, async (user) => {
    const key = refKey(run, user);
    const record = await requireRecord(store, key, 'ref');
    if (record.run === run && record.user === user) return record;
    throw new UnreadableRecord(key, `it says that ${record.user} needs ${record.run}`);
  });
}

export async function needsOf(store: ObjectStore, run: string): Promise<Need[]> {
  const references = await readReferences(store, run);
  const needs: Need[] = references.map(({ user, step }) => ({ step, by: user }));
  for (const other of await listRuns(store)) {
    if (other === run || !(await readRunIfAny(store, other))?.lineage) continue;
    for await (const { run: ancestor, upTo } of timelinesOf(store, other)) {
      if (ancestor === run && !needs.some(({ by, step }) => by === other && step === upTo))
        needs.push({ step: upTo, by: other });
    }
  }
  return [...needs, ...(await openSweepNeeds(store, run))];
}
