// Checks a run's sequences (R2, R20, R21): owners, control, collections and the timelines of its name. None may have a gap.
import type { CollectionRecord, RunRecord } from '../../spec/records/run-records.js';
import { type AuditReport, readable } from './audit-report.js';
import {
  collectionsFolder,
  controlFolder,
  episodesFolder,
  namesFolder,
  ownersFolder,
  runKey,
  sequenceKey,
} from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readSequence } from '../records/records.js';
import { readControl } from '../runs/control-records.js';
import { timelinesOf } from '../runs/run-records.js';

export interface Sequences {
  owners: number;
  control: number;
  /** Null if the collections' records cannot be read. */
  collections: NamedByCollections | null;
}

/** Steps whose checkpoints or episodes the records of collections name. */
interface NamedByCollections {
  checkpoints: ReadonlySet<number>;
  episodes: ReadonlySet<number>;
}

export async function namedByCollections(store: ObjectStore, run: string): Promise<NamedByCollections> {
  return named(await readSequence(store, collectionsFolder(run), 'gc'));
}

export async function auditSequences(
  store: ObjectStore,
  record: RunRecord,
  report: AuditReport,
): Promise<Sequences> {
  const { run, name } = record;
  const [owners, control, names, collections] = await Promise.all([
    readable(report, ownersFolder(run), () => readSequence(store, ownersFolder(run), 'owner')),
    readable(report, controlFolder(run), () => readSequence(store, controlFolder(run), 'control')),
    readable(report, namesFolder(name), () => readSequence(store, namesFolder(name), 'name')),
    readable(report, collectionsFolder(run), () => readSequence(store, collectionsFolder(run), 'gc')),
  ]);
  const asked = new Map<string, number>();
  for (const { n, update_id } of control ?? []) {
    const earlier = asked.get(update_id);
    if (earlier !== undefined) {
      report.add('R21', sequenceKey(controlFolder(run), n), `it repeats record ${earlier}`);
    }
    asked.set(update_id, n);
  }
  if (names && !names.some((timeline) => timeline.run === run)) {
    report.add('R2', runKey(run), `no record of ${namesFolder(name)} names this run`);
  }
  report.collected.records = collections?.length ?? 0;
  // If a sequence cannot be read, references to it are not checked.
  return {
    owners: owners?.length ?? Infinity,
    control: control?.length ?? Infinity,
    collections: collections && named(collections),
  };
}

/** Control and owner records after the newest plan: no plan holds their digest yet. */
export function unproven(
  run: string,
  { owners, control }: Sequences,
  planned: { owner: number; control: number },
): string[] {
  const behind = (folder: string, count: number, last: number, what: string): string[] =>
    Number.isFinite(count) && count > last
      ? [`${sequenceKey(folder, last + 1)}${count > last + 1 ? ` to ${count}.json` : ''}: ${what}`]
      : [];
  return [
    ...behind(ownersFolder(run), owners, planned.owner, 'no step was planned under this owner'),
    ...behind(controlFolder(run), control, planned.control, 'no plan covers the change in it'),
  ];
}

function named(records: readonly CollectionRecord[]): NamedByCollections {
  return {
    checkpoints: new Set(records.flatMap((one) => one.checkpoints)),
    episodes: new Set(records.flatMap((one) => one.episodes)),
  };
}

/**
 * Lists what the steps of a run had sampled before they were sampled again (R24). This is no violation: a person asked for it, in a control
 * record. `store`: the store itself, since a run’s view does not show what is set aside.
 */
export async function auditResamples(store: ObjectStore, run: string, report: AuditReport): Promise<void> {
  for await (const timeline of timelinesOf(store, run)) {
    const records = await readable(report, `runs/${timeline.run}`, () => readControl(store, timeline.run));
    for (const { n, change } of records ?? []) {
      if (change.kind !== 'resample' || change.step > timeline.upTo) continue;
      const keys = new Set(change.keys);
      let episodes = 0;
      for await (const { key } of store.list(episodesFolder(timeline.run, change.step)))
        if (keys.has(key)) episodes += 1;
      report.resampled.push({ step: change.step, control: n, episodes });
    }
  }
  report.resampled.sort((a, b) => a.step - b.step || a.control - b.control);
}
