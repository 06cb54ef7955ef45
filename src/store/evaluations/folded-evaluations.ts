// The store as all its readers see it: the episodes of an evaluation are at their keys, even after a collection has put them into one file
// (R23). Evaluations are read in many places, begun by any run and never committed as a step is: done here, no reader can forget it.
import { parseEvaluationKey } from '../objects/layout.js';
import type { ObjectStore } from '../objects/object-store.js';
import { withFoldedEpisodes } from '../runs/episodes.js';

/** Code that folds takes only this type: in a view laid over it, folded episodes still seem to lie at their keys. */
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
