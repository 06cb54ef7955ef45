// Decides which evaluations belong to a run. Evaluations are stored by state, so another run with the same state may have played an
// evaluation that this run asks for. This run adopts that evaluation, and ignores all others.
import type { EvaluationResult } from '../spec/records/evaluation-records.js';
import type { ControlRecord } from '../spec/records/control-records.js';
import type { RunRecord } from '../spec/records/run-records.js';
import type { RunSpec } from '../spec/run-spec.js';
import {
  isRunSuite,
  plannedSteps,
  reachesTarget,
  type RunSuite,
  runSuites,
  specsInForce,
  stopsAsked,
  suiteDue,
} from '../spec/schedule.js';
import type { ObjectStore } from '../store/objects/object-store.js';
import { isSuiteOf } from '../store/evaluations/suite-comparability.js';

interface Asking {
  record: RunRecord;
  control: readonly ControlRecord[];
}

/**
 * The step to which a result belongs; null if the result is not the run's. If the run itself played it: the step at which it did. Otherwise
 * the first of `steps` (the run has the state after each of them) at which the run asks for the suite. Later records never change the
 * answer. `beside`: all results of the state.
 */
export async function stepOfResult(
  store: ObjectStore,
  { record, control }: Asking,
  steps: readonly number[],
  result: EvaluationResult,
  beside: readonly EvaluationResult[],
): Promise<number | null> {
  const { suite_name } = result;
  if (!isRunSuite(suite_name)) return null;
  if (result.observed.run === record.run)
    return steps.includes(result.observed.step) ? result.observed.step : null;
  // Steps up to the fork are the parent's, and so are their evaluations.
  const own = steps.filter((step) => record.lineage === null || step > record.lineage.step);
  const asked = own.find((step) => asksFor(record.spec, control, step, suite_name, beside));
  if (asked === undefined) return null;
  return (await isSuiteOf(store, record, result)) ? asked : null;
}

/** Steps from `first` to `last` at which the run asks for an evaluation, as far as its records show. */
export function stepsAskedAt({ record, control }: Asking, first: number, last: number): number[] {
  const steps = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  return steps.filter((step) => runSuites.some((name) => asksFor(record.spec, control, step, name, [])));
}

/** Sorts results in the order in which a run plays them. */
export function bySuite(a: EvaluationResult, b: EvaluationResult): number {
  const rank = ({ suite_name }: EvaluationResult): number =>
    runSuites.findIndex((name) => name === suite_name);
  return rank(a) - rank(b) || (a.suite < b.suite ? -1 : 1);
}

/**
 * True if the run asks for `suite` at `step`. False at an end by the budget or by a late stop, which the steps' records do not show: there
 * only the run's own evaluations count, so that its figures do not depend on when they are read.
 */
function asksFor(
  spec: RunSpec,
  control: readonly ControlRecord[],
  step: number,
  suite: RunSuite,
  beside: readonly EvaluationResult[],
): boolean {
  if (suite === 'interval') return specsInForce(spec, control).some((one) => suiteDue(one, step) === suite);
  return (
    step >= plannedSteps(spec).total ||
    suiteDue(spec, step) === suite ||
    stopsAsked(control).includes(step) ||
    beside.some((one) => one.suite_name === 'interval' && reachesTarget(spec, step, one.pass_at_1))
  );
}
