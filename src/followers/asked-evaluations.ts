// Which evaluations are a run's. They are filed by state, and another run that had the same state may have played what this one
// asks for: the run takes it over then, and has nothing to do with the others.
import { isDeepStrictEqual } from 'node:util';
import type { EvaluationResult } from '../spec/evaluation-records.js';
import type { ControlRecord, RunRecord } from '../spec/records.js';
import { sameNumerics } from '../spec/numerics.js';
import type { RunSpec } from '../spec/run-spec.js';
import { lastWarmStep } from '../spec/warm-start.js';
import { datasetManifestKey, evaluationSuiteKey } from '../store/layout.js';
import type { ObjectStore } from '../store/object-store.js';
import { readRecord, requireRecord } from '../store/records.js';
import { readNumerics } from '../store/run-records.js';

/** What runs play of themselves, and in this order where a step has both; sweeps play others. */
const suiteNames = ['interval', 'final'];

interface Asking {
  record: RunRecord;
  control: readonly ControlRecord[];
}

/**
 * The step that a result is of: where this run played it, or the first of `steps` (after all of which the run has that state) at
 * which it asks for the suite. Null: it is not the run's. What was the run's stays so, whatever is recorded later. `beside`: all
 * results of the state.
 */
export async function stepOfResult(
  store: ObjectStore,
  { record, control }: Asking,
  steps: readonly number[],
  result: EvaluationResult,
  beside: readonly EvaluationResult[],
): Promise<number | null> {
  if (!suiteNames.includes(result.suite_name)) return null;
  if (result.observed.run === record.run)
    return steps.includes(result.observed.step) ? result.observed.step : null;
  // Up to there the steps are the parent's, and so is what was measured on them.
  const own = steps.filter((step) => record.lineage === null || step > record.lineage.step);
  const asked = own.find((step) => asksFor(record.spec, control, step, result.suite_name, beside));
  if (asked === undefined) return null;
  return (await isSuiteOf(store, record, result)) ? asked : null;
}

/** Steps from `first` to `last` at which the run asks for an evaluation that its records foretell. */
export function stepsAskedAt({ record, control }: Asking, first: number, last: number): number[] {
  const steps = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  return steps.filter((step) => suiteNames.some((name) => asksFor(record.spec, control, step, name, [])));
}

/** In the order in which a run plays them. */
export function bySuite(a: EvaluationResult, b: EvaluationResult): number {
  const rank = ({ suite_name }: EvaluationResult): number => suiteNames.indexOf(suite_name);
  return rank(a) - rank(b) || (a.suite < b.suite ? -1 : 1);
}

/**
 * At an end by the budget, and by a stop that came late, only what the run itself played counts: the records of steps do not tell
 * that it ended there, and what is told of a run must not depend on when one looks.
 */
function asksFor(
  spec: RunSpec,
  control: readonly ControlRecord[],
  step: number,
  suiteName: string,
  beside: readonly EvaluationResult[],
): boolean {
  const { target_pass_at_1, eval_interval, max_training_steps } = spec.trainer;
  const warm = lastWarmStep(spec);
  const total = warm + max_training_steps;
  const changes = control.map(({ change }) => change);
  if (suiteName === 'final') {
    const stops = changes.some((change) => change.kind === 'stopAfter' && change.step === step);
    const reached =
      target_pass_at_1 > 0 &&
      step > warm &&
      beside.some((one) => one.suite_name === 'interval' && one.pass_at_1 >= target_pass_at_1);
    return step >= total || step === warm || stops || reached;
  }
  if (step >= total || step === warm) return false;
  const intervals = changes.flatMap((change) =>
    change.kind === 'setHyperparameters' ? (change.eval_interval ?? []) : [],
  );
  return (
    step === 0 ||
    (step > warm && [eval_interval, ...intervals].some((every) => every > 0 && (step - warm) % every === 0))
  );
}

/** True where `result` measures what the run would: as many tasks of its data, with its seed, settings and numerics. */
async function isSuiteOf(store: ObjectStore, record: RunRecord, result: EvaluationResult): Promise<boolean> {
  const suite = await readRecord(store, evaluationSuiteKey(result.state, result.suite), 'suite');
  if (!suite || suite.seed !== record.seed) return false;
  const { tokenizer, chat_template, tool_parser, dataset } = suite.digests;
  const alike =
    tokenizer === record.tokenizer &&
    chat_template === record.chat_template &&
    tool_parser === record.tool_parser &&
    dataset === record.dataset.digest;
  if (!alike) return false;
  // Evaluations are sampled at temperature 1, with all other settings of the run.
  const expected: Record<string, unknown> = { ...record.spec.generator, temperature: 1 };
  const sampled: Record<string, unknown> = { stop: undefined, ...suite.sampling };
  if (!Object.keys(sampled).every((name) => isDeepStrictEqual(expected[name], sampled[name]))) return false;
  if (!sameNumerics(suite.numerics, await readNumerics(store, record.run))) return false;
  const { name, version } = record.dataset;
  const manifest = await requireRecord(store, datasetManifestKey(name, version), 'dataset');
  const { eval_tasks, final_eval_tasks } = record.spec.data;
  const wanted = result.suite_name === 'final' ? final_eval_tasks : eval_tasks;
  return suite.tasks.length === Math.min(wanted, manifest.held_out_tasks);
}
