// A run may be started many times, each time with another budget. The settings of a start apply to the steps that it planned, at whatever
// time a reader asks.
import { isDeepStrictEqual } from 'node:util';
import type { OwnerRecord } from '../../spec/records/run-records.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readPlan } from '../../store/runs/run-records.js';

/**
 * The setting `given` of the start that planned the step. `owners` must be read after the update, so that they include this start. If all
 * starts have the same setting, which is usual, no plan is read.
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
