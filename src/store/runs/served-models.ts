// Reads and writes the records of a run's models, and of their saved states, on a Tinker server (R33, R36).
import type { InstanceRecord, SavedStateRecord } from '../../spec/records/served-model.js';
import { instancesFolder, savedStatesFolder } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { appendSequence, readSequence } from '../records/records.js';

export function readInstances(store: ObjectStore, run: string): Promise<InstanceRecord[]> {
  return readSequence(store, instancesFolder(run), 'instance');
}

export function recordInstance(
  store: ObjectStore,
  instance: Omit<InstanceRecord, 'schema' | 'n' | 'observed'> & { by: string },
): Promise<InstanceRecord> {
  const { by, ...rest } = instance;
  const observed = { at: new Date().toISOString(), by };
  return appendSequence(store, instancesFolder(instance.run), 'instance', (n) => ({
    ...{ schema: 'longhaul.instance/1', n },
    ...rest,
    observed,
  }));
}

/** `run`: the run whose folder holds the step. */
export function readSavedStates(store: ObjectStore, run: string, step: number): Promise<SavedStateRecord[]> {
  return readSequence(store, savedStatesFolder(run, step), 'saved');
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
