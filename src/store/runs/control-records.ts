// The control records of a run, in order (R21). Every activity of a run needs all of them, and a long run has many.
import type {
  ControlChange,
  ControlRecord,
  ControlState,
  Hyperparameters,
} from '../../spec/records/control-records.js';
import { controlFolder } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { readSequence } from '../records/records.js';

/** Each record is read once per store, as records never change (R1). The folder is listed each time, to find other writers' records. */
const recordsRead = new WeakMap<ObjectStore, Map<string, readonly ControlRecord[]>>();

export async function readControl(store: ObjectStore, run: string): Promise<readonly ControlRecord[]> {
  const runs = recordsRead.get(store) ?? new Map<string, readonly ControlRecord[]>();
  recordsRead.set(store, runs);
  const records = await readSequence(store, controlFolder(run), 'control', runs.get(run));
  runs.set(run, records);
  return records;
}

export async function foldedControl(store: ObjectStore, run: string): Promise<ControlState> {
  return foldControl(await readControl(store, run));
}

/** Folds all control records in order: a later record replaces an earlier one (R21). */
export function foldControl(records: readonly ControlRecord[]): ControlState {
  const state: ControlState = { n: 0, paused: false, stopAfter: null, lr: null, temperature: null };
  for (const { n, change } of records) {
    state.n = Math.max(state.n, n);
    switch (change.kind) {
      case 'pause':
        state.paused = true;
        if (change.now) state.pausedNow = true;
        break;
      case 'resume':
        state.paused = false;
        delete state.pausedNow;
        break;
      case 'stopAfter':
        state.stopAfter = change.step;
        break;
      case 'checkpointNow':
        state.checkpoint = change.step;
        break;
      case 'setHyperparameters':
        Object.assign(state, hyperparametersOf(change));
        break;
      case 'quarantine':
        break;
    }
  }
  return state;
}

function hyperparametersOf({
  kind: _kind,
  ...values
}: Extract<ControlChange, { kind: 'setHyperparameters' }>): Hyperparameters {
  return values;
}
