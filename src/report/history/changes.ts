// The changes that people made while a run was running, and the first step of each change.
import type { ControlChange } from '../../spec/records/control-records.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { inParallel } from '../../base/in-parallel.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readPlan } from '../../store/runs/run-records.js';
import type { RunHistory } from './run-history.js';

export interface AcceptedChange {
  n: number;
  at: string;
  what: string;
  /**
   * First step whose plan includes the change. A change that concerns later steps takes effect from this step on (R21). Null until a plan
   * includes the change.
   */
  step: number | null;
}

export async function readChanges(store: ObjectStore, history: RunHistory): Promise<AcceptedChange[]> {
  return inParallel(history.control, async ({ n, change, observed }) => ({
    n,
    at: observed.at,
    what: inWords(change),
    step: await firstStepCovering(store, history, n),
  }));
}

/** A plan names the highest control number that it folded in. That number never falls, so a binary search reads only a few plans. */
async function firstStepCovering(
  store: ObjectStore,
  { updates }: RunHistory,
  n: number,
): Promise<number | null> {
  let [low, high] = [0, updates.length];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const { run, step } = (updates[middle] as UpdateRecord).identity;
    const plan = await readPlan(store, { run, step });
    if (plan.control >= n) high = middle;
    else low = middle + 1;
  }
  return updates[low]?.identity.step ?? null;
}

function inWords(change: ControlChange): string {
  switch (change.kind) {
    case 'pause':
      return change.now ? 'paused without waiting for the end of the step' : 'paused';
    case 'resume':
      return 'resumed';
    case 'stopAfter':
      return `to stop after step ${change.step}`;
    case 'checkpointNow':
      return `a checkpoint of step ${change.step} or the next`;
    case 'quarantine':
      return `quarantined: ${change.key}`;
    case 'resample':
      return `step ${change.step} sampled again`;
    case 'setHyperparameters':
      return Object.entries(change)
        .filter(([name]) => name !== 'kind')
        .map(([name, value]) => `${name} = ${value}`)
        .join(', ');
  }
}
