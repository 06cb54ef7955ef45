// An activity reads the store through its run's view, which skips quarantined records and returns their replacements (R24). Data that
// outlives an attempt (a run's data) contains only records that cannot be quarantined (`checkQuarantinable`).
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunView, remedyFor } from '../../store/runs/quarantine.js';
import { UnreadableRecord } from '../../store/record-errors.js';

/** Activities get the store as a view. */
type InView<Deps> = Omit<Deps, 'store'> & { store: ObjectStore };

/** Each attempt gets a new view, so that it also skips records quarantined since the last attempt. */
export function withRunView<Deps extends { store: ObjectStore }, I extends { run: string }, O>(
  deps: Deps,
  activity: (deps: InView<Deps>, input: I) => Promise<O>,
): (input: I) => Promise<O> {
  return (input) => sayingRemedies(deps.store, input.run, () => inView(deps, activity, input));
}

async function inView<Deps extends { store: ObjectStore }, I extends { run: string }, O>(
  deps: Deps,
  activity: (deps: InView<Deps>, input: I) => Promise<O>,
  input: I,
): Promise<O> {
  const store = await openRunView(deps.store, input.run);
  if (store === deps.store) return activity(deps, input);
  // Only `store` is replaced. All other members are read from the original object and written to it.
  const viewed = new Proxy(deps, {
    get: (target, name) => (name === 'store' ? store : (Reflect.get(target, name) as unknown)),
  });
  return activity(viewed, input);
}

/** Adds the remedy to an `UnreadableRecord` error, so that the blocked run can show it. */
async function sayingRemedies<O>(store: ObjectStore, run: string, act: () => Promise<O>): Promise<O> {
  try {
    return await act();
  } catch (error) {
    // If the store does not answer now, the error keeps its general remedy.
    if (error instanceof UnreadableRecord)
      error.remedy = await remedyFor(store, error.key, run).catch(() => null);
    throw error;
  }
}
