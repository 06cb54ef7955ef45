// The steps at which a run asks for an evaluation, to look again for those that came after their step was delivered.
import type { ControlRecord } from '../../spec/records/control-records.js';
import type { OwnerRecord, RunRecord } from '../../spec/records/run-records.js';
import type { RunSpec } from '../../spec/run-spec.js';
import {
  plannedSteps,
  type RunSuite,
  runSuites,
  specsInForce,
  stopsAsked,
  suiteDue,
} from '../../spec/schedule.js';
import { isDeepStrictEqual } from 'node:util';
import type { UpdateRecord } from '../../spec/records/update.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readPlan } from '../../store/runs/run-records.js';

interface Asking {
  record: RunRecord;
  control: readonly ControlRecord[];
}

/** Steps from `first` to `last` at which the run asks for an evaluation, as far as its records show. */
export function stepsAskedAt({ record, control }: Asking, first: number, last: number): number[] {
  const steps = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  return steps.filter((step) => runSuites.some((name) => asksFor(record.spec, control, step, name)));
}

/** True if the run asks for `suite` at `step`. False at an end that the steps' records do not show: by the budget, a late stop or the target. */
function asksFor(spec: RunSpec, control: readonly ControlRecord[], step: number, suite: RunSuite): boolean {
  if (suite === 'interval') return specsInForce(spec, control).some((one) => suiteDue(one, step) === suite);
  return (
    step >= plannedSteps(spec).total || suiteDue(spec, step) === suite || stopsAsked(control).includes(step)
  );
}

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
  const { owner } = await readPlan(store, identity);
  return given(owners[owner - 1]);
}
