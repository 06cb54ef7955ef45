// The steps at which a run asks for an evaluation, to look again for those that came after their step was delivered.
import type { ControlRecord } from '../../spec/records/control-records.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { RunSpec } from '../../spec/run-spec.js';
import {
  plannedSteps,
  type RunSuite,
  runSuites,
  specsInForce,
  stopsAsked,
  suiteDue,
} from '../../spec/schedule.js';

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
