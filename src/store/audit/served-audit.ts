// Checks the records that say which batches a model on a Tinker server has taken (R34): the instances in updates, and the records of batches that
// were applied again.
import type { UpdateRecord } from '../../spec/records/update.js';
import { appliedFolder, appliedKey, instancesFolder, updateKey } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readUpdateIfAny } from '../runs/run-records.js';
import { isTrained, readInstances } from '../runs/served-models.js';
import { AuditReport, readable } from './audit-report.js';
import type { Chain } from './chain.js';

/** A batch that an instance has taken, according to a record. */
interface Taken {
  key: string;
  instance: number;
  step: number;
  requests: number;
}

/** Reports violations in the run's own records. Records of a fork's parent belong to the parent's audit. */
export async function checkServed(
  { store, record, report }: Pick<Chain, 'store' | 'record' | 'report'>,
  last: number,
): Promise<void> {
  const { run, spec, lineage } = record;
  if (!spec.model.served) return;
  const instances = await readable(report, instancesFolder(run), () => readInstances(store, run));
  if (!instances) return;
  const trained = new Set(
    instances.filter((one) => isTrained(one) && one.given_up === undefined).map(({ n }) => n),
  );
  const taken: Taken[] = [];
  for (let step = (lineage?.step ?? 0) + 1; step <= last; step++) {
    const served = (await updateOf(store, run, step))?.observed.served;
    if (served) taken.push({ key: updateKey(run, step), step, ...served });
  }
  taken.push(...(await appliedAgain(store, run, report)));
  const newest = new Map<number, Taken>();
  for (const one of taken.sort((a, b) => a.step - b.step)) {
    const { key, instance, step, requests } = one;
    if (!trained.has(instance))
      report.add('R34', key, `it names instance ${instance}, which ${instancesFolder(run)} does not have`);
    const before = newest.get(instance);
    if (before && before.step < step && before.requests >= requests)
      report.add('R34', key, `it counts ${requests} requests, and ${before.key} as many or more before it`);
    newest.set(instance, one);
  }
}

async function appliedAgain(store: ObjectStore, run: string, report: AuditReport): Promise<Taken[]> {
  const taken: Taken[] = [];
  for await (const { key } of store.list(appliedFolder(run))) {
    const record = await report.read(store, key, 'applied');
    if (!record) continue;
    const { instance, step, requests, step_id } = record;
    if (key !== appliedKey(record.run, instance, step))
      report.add('R34', key, `it says step ${step} of instance ${instance} of ${record.run}`);
    else if (step_id !== (await updateOf(store, run, step))?.identity.step_id)
      report.add('R34', key, `its step_id is not the one in the update of step ${step}`);
    else taken.push({ key, instance, step, requests });
  }
  return taken;
}

/** Null if it is missing or cannot be read: the chain's audit reports that. */
function updateOf(store: ObjectStore, run: string, step: number): Promise<UpdateRecord | null> {
  return readable(new AuditReport(run), updateKey(run, step), () => readUpdateIfAny(store, run, step));
}
