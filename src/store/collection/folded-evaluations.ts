// The store as all its readers see it: the episodes of an evaluation are at their keys, also where a collection has put them into one
// file (R23). Evaluations are read in many places, begun by any run and never committed as a step is: done here, no reader can forget it.
import { parseEvaluationKey } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { withFoldedEpisodes } from '../runs/episodes.js';

const rawStores = new WeakMap<ObjectStore, ObjectStore>();

/** What is really there: for those that fold. */
export function unfoldedStore(store: ObjectStore): ObjectStore {
  return rawStores.get(store) ?? store;
}

export function withFoldedEvaluations(raw: ObjectStore): ObjectStore {
  const view = withFoldedEpisodes(raw, (key) => {
    const { state, suite } = parseEvaluationKey(key) ?? {};
    return state === undefined || suite === undefined ? null : { state, suite };
  });
  rawStores.set(view, raw);
  return view;
}
