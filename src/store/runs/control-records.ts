// The control records of a run, in order (R21). Every activity of a run needs all of them, and a long run has many.
import type {
  ControlChange,
  ControlRecord,
  ControlState,
  Hyperparameters,
} from '../../spec/records/control-records.js';
import { controlFolder } from '../record-keys.js';
import type { ObjectStore } from '../objects/object-store.js';
import { rereadSequence } from '../records/records.js';

export function readControl(store: ObjectStore, run: string): Promise<readonly ControlRecord[]> {
  return rereadSequence(store, controlFolder(run), 'control');
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
      case 'resample':
        state.resampled = n;
        break;
    }
  }
  return state;
}

/** Keys that a change sets aside (R24). */
export function keysSetAsideBy(change: ControlChange): readonly string[] {
  if (change.kind === 'resample') return change.keys;
  return change.kind === 'quarantine' ? [change.key, ...(change.also ?? [])] : [];
}

function hyperparametersOf({
  kind: _kind,
  ...values
}: Extract<ControlChange, { kind: 'setHyperparameters' }>): Hyperparameters {
  return values;
}
