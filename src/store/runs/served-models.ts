// Reads and writes the records of a run's models, and of their saved states, on a Tinker server (R33, R36).
import type { AppliedRecord, InstanceRecord, SavedStateRecord } from '../../spec/records/served-model.js';
import { appliedKey, instancesFolder, savedStatesFolder } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import {
  adoptOrCreate,
  appendSequence,
  readRecord,
  readSequence,
  rereadSequence,
} from '../records/records.js';

export function readInstances(store: ObjectStore, run: string): Promise<InstanceRecord[]> {
  return readSequence(store, instancesFolder(run), 'instance');
}

interface RunModel {
  /** The record of its beginning. */
  record: InstanceRecord;
  /** True if a later record says that the model is given up. */
  ended: boolean;
}

/** The run's models, in the order in which they began. */
export async function readModels(store: ObjectStore, run: string): Promise<RunModel[]> {
  const records = await rereadSequence(store, instancesFolder(run), 'instance');
  return records
    .filter(({ given_up }) => !given_up)
    .map((record) => ({
      record,
      ended: records.some(({ given_up, model, n }) => given_up && model === record.model && n > record.n),
    }));
}

/** The trained models, without those that are only sampled. */
export async function readTrained(store: ObjectStore, run: string): Promise<RunModel[]> {
  return (await readModels(store, run)).filter(({ record }) => isTrained(record));
}

/** False for a model that is only sampled. */
export function isTrained({ purpose }: InstanceRecord): boolean {
  return purpose === undefined;
}

/** Records that a model is ended. Does nothing for a trained model that is not the newest: the record would end the newest one. */
export async function recordGivenUp(store: ObjectStore, ended: InstanceRecord, by: string): Promise<void> {
  const { run, model, step, path, purpose, node = by } = ended;
  const observed = { at: new Date().toISOString(), by };
  const known = await rereadSequence(store, instancesFolder(run), 'instance');
  const next = (n: number, existing: readonly InstanceRecord[]): InstanceRecord => {
    const newest = isTrained(ended)
      ? existing.findLast(isTrained)
      : existing.findLast((one) => one.model === model);
    if (newest && (newest.model !== model || newest.given_up)) return newest;
    const role = purpose ? { purpose } : {};
    return {
      schema: 'longhaul.instance/2',
      n,
      run,
      model,
      step,
      path,
      ...role,
      node,
      given_up: true,
      observed,
    };
  };
  await appendSequence(store, instancesFolder(run), 'instance', next, known);
}

export async function recordInstance(
  store: ObjectStore,
  instance: Omit<InstanceRecord, 'schema' | 'n' | 'observed'> & { by: string; node: string },
): Promise<InstanceRecord> {
  const { by, ...rest } = instance;
  const observed = { at: new Date().toISOString(), by };
  const folder = instancesFolder(instance.run);
  const known = await rereadSequence(store, folder, 'instance');
  const next = (n: number): InstanceRecord => ({ schema: 'longhaul.instance/2', n, ...rest, observed });
  return appendSequence(store, folder, 'instance', next, known);
}

export async function readApplied(
  store: ObjectStore,
  run: string,
  n: number,
  step: number,
): Promise<AppliedRecord | null> {
  return readRecord(store, appliedKey(run, n, step), 'applied');
}

/** Records that an instance has taken the batch of a committed step. */
export async function recordApplied(
  store: ObjectStore,
  { by, ...applied }: Omit<AppliedRecord, 'schema' | 'observed'> & { by: string },
): Promise<void> {
  const { run, instance, step } = applied;
  await adoptOrCreate(store, appliedKey(run, instance, step), 'applied', {
    ...{ schema: 'longhaul.applied/1', ...applied },
    observed: { at: new Date().toISOString(), by },
  });
}

/** `run`: the run whose folder holds the step. */
export function readSavedStates(store: ObjectStore, run: string, step: number): Promise<SavedStateRecord[]> {
  return readSequence(store, savedStatesFolder(run, step), 'saved');
}

export function withoutRemoved(saved: readonly SavedStateRecord[]): SavedStateRecord[] {
  const removed = new Set(saved.filter((one) => one.removed).map(({ path }) => path));
  return saved.filter(({ path }) => !removed.has(path));
}

/** Records that a saved state is removed from the server. */
export function recordRemoved(
  store: ObjectStore,
  { schema: _, n: __, observed: ___, ...saved }: SavedStateRecord,
  by: string,
): Promise<SavedStateRecord> {
  const isSame = (one: SavedStateRecord): boolean => one.path === saved.path && one.removed === true;
  return appendSaved(store, { ...saved, removed: true }, by, isSame);
}

/** Records a saved state, unless its path is recorded already. */
export function recordSavedState(
  store: ObjectStore,
  { by, ...saved }: Omit<Saved, 'removed'> & { by: string },
): Promise<SavedStateRecord> {
  return appendSaved(store, saved, by, ({ path }) => path === saved.path);
}

type Saved = Omit<SavedStateRecord, 'schema' | 'n' | 'observed'>;

function appendSaved(
  store: ObjectStore,
  saved: Saved,
  by: string,
  isSame: (existing: SavedStateRecord) => boolean,
): Promise<SavedStateRecord> {
  const observed = { at: new Date().toISOString(), by };
  return appendSequence(
    store,
    savedStatesFolder(saved.run, saved.step),
    'saved',
    (n, existing) => existing.find(isSame) ?? { schema: 'longhaul.saved/1', n, ...saved, observed },
  );
}
