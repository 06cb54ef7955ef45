// The view of the store that all readers use: episodes of an evaluation are at their own keys, even after a collection has folded them into
// one file (R23). Many readers read evaluations; with the view on every opened store, no reader can forget it.
import { parseEvaluationKey } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { withFoldedEpisodes } from '../runs/episodes.js';

/** A store with this view. Code that folds needs `unfolded`: through any view, folded episodes look like single records. */
export interface OpenedStore extends ObjectStore {
  /** The store without the view. */
  readonly unfolded: ObjectStore;
}

export function withFoldedEvaluations(unfolded: ObjectStore): OpenedStore {
  const view = withFoldedEpisodes(unfolded, (key) => {
    const { state, suite } = parseEvaluationKey(key) ?? {};
    return state === undefined || suite === undefined ? null : { state, suite };
  });
  return { ...view, unfolded };
}
