// An activity sees the store as its run does: a record set aside is passed over, and its replacement stands for it (R24). What is kept
// longer than an attempt (a run's data) is made of records that cannot be set aside (`checkQuarantinable`).
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunView, remedyFor } from '../../store/runs/quarantine.js';
import { UnreadableRecord } from '../../store/objects/store-errors.js';

/** The store is only a view here. */
type InView<Deps> = Omit<Deps, 'store'> & { store: ObjectStore };

/** Each attempt gets a new view, so that it passes over a record that was set aside meanwhile. */
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
  // All other members are the original object's, including what an activity writes there.
  const viewed = new Proxy(deps, {
    get: (target, name) => (name === 'store' ? store : (Reflect.get(target, name) as unknown)),
  });
  return activity(viewed, input);
}

/** Adds to an unreadable record what can be done about it, before the run is blocked by it. */
async function sayingRemedies<O>(store: ObjectStore, run: string, act: () => Promise<O>): Promise<O> {
  try {
    return await act();
  } catch (error) {
    // If the store cannot answer now, the general words stay.
    if (error instanceof UnreadableRecord)
      error.remedy = await remedyFor(store, error.key, run).catch(() => null);
    throw error;
  }
}
