// A run may be started many times, each time with another budget. What a start was given holds for the steps that it planned, whoever
// reads them and however late.
import { isDeepStrictEqual } from 'node:util';
import type { OwnerRecord } from '../spec/records/run-records.js';
import type { UpdateRecord } from '../spec/records/update.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { readPlan } from '../store/runs/run-records.js';

/**
 * What `given` says of the start that planned the step. `owners`: read after the update, so that it is among them. Where all starts
 * were given the same, the usual, no plan is looked at.
 */
export async function ofOwnStart<T>(
  store: ObjectStore,
  { identity }: UpdateRecord,
  owners: readonly OwnerRecord[],
  given: (owner: OwnerRecord | undefined) => T,
): Promise<T> {
  const [first, ...others] = owners;
  const usual = given(first);
  if (others.every((other) => isDeepStrictEqual(given(other), usual))) return usual;
  const { owner } = (await readPlan(store, identity.run, identity.step, identity.plan)).record;
  return given(owners[owner - 1]);
}
