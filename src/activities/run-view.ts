// An activity sees the store as its run does: what was set aside is passed over, its replacement stands for it (R24). What is
// kept longer than an attempt (a run's data) is made of records that cannot be set aside (`checkQuarantinable`).
import type { ObjectStore } from '../store/object-store.js';
import { openRunView } from '../store/quarantine.js';

/** The view is made anew for each attempt, so that a record set aside meanwhile is passed over by the next one. */
export function withRunView<Deps extends { store: ObjectStore }, I extends { run: string }, O>(
  deps: Deps,
  activity: (deps: Deps, input: I) => Promise<O>,
): (input: I) => Promise<O> {
  return async (input) => {
    const store = await openRunView(deps.store, input.run);
    if (store === deps.store) return activity(deps, input);
    // Everything but the store is the same object's, also what an activity writes there.
    const viewed = new Proxy(deps, {
      get: (target, name) => (name === 'store' ? store : (Reflect.get(target, name) as unknown)),
    });
    return activity(viewed, input);
  };
}
