// Reads the evaluations of a run. Results are stored by state, so a state may also have results of other runs. The run adopts such a result
// if it asks for the same suite; other results are ignored.
import type { EvaluationResult } from '../../spec/records/evaluation-records.js';
import type { ControlRecord } from '../../spec/records/control-records.js';
import type { Digest } from '../../spec/records/parts.js';
import type { OwnerRecord, RunRecord } from '../../spec/records/run-records.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { plannedSteps, reachesTarget, specsInForce, stopsAsked, suiteDue } from '../../spec/schedule.js';
import { inParallel } from '../../base/in-parallel.js';
import { evaluationResultKey, evaluationsOfState } from '../../store/objects/layout.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { isSuiteOf } from '../../store/evaluations/suite-comparability.js';
import { isUnnamed, readEvaluated, readRunEvaluations } from '../../store/evaluations/run-evaluations.js';
import { readRecord } from '../../store/records/records.js';
import { foldControl } from '../../store/runs/control-records.js';
import { readState, timelinesOf } from '../../store/runs/run-records.js';
import { budgetIsSpent } from '../budget.js';

export interface EvaluationFigure {
  step: number;
  result: EvaluationResult;
}

interface EvaluatedRun {
  record: RunRecord;
  /** Steps 1…n in order. */
  updates: readonly UpdateRecord[];
  control: readonly ControlRecord[];
  owners: readonly OwnerRecord[];
}

/** A state and the steps after which the run has it. There are several if a step was not applied. */
interface HeldState {
  state: Digest;
  steps: number[];
}

interface Found {
  steps: number[];
  result: EvaluationResult;
}

/** Sorted by step, then by suite name. The run's base record must exist. */
export async function readEvaluations(store: ObjectStore, run: EvaluatedRun): Promise<EvaluationFigure[]> {
  const { record, updates } = run;
  const named = await readNamed(store, record.run);
  const isNamed = (result: EvaluationResult): boolean =>
    named.some((one) => one.result.state === result.state && one.result.suite === result.suite);
  const held = heldStates(await readState(store, record.run, 0), updates);
  const found = await unnamedOf(
    store,
    (await readResults(store, held)).filter(({ result }) => !isNamed(result)),
  );
  const timelines = new Set<string>();
  for await (const timeline of timelinesOf(store, record.run)) timelines.add(timeline.run);

  const figuresWhere = async (
    name: string,
    asked: (step: number) => boolean,
  ): Promise<EvaluationFigure[]> => {
    const figures = await inParallel(found, async ({ steps, result }) => {
      if (result.suite_name !== name) return null;
      const { run: maker, step: made } = result.observed;
      if (timelines.has(maker) && steps.includes(made)) return { step: made, result };
      const step = steps.find(asked);
      return step !== undefined && (await isSuiteOf(store, record, result)) ? { step, result } : null;
    });
    return figures.filter((figure) => figure !== null);
  };

  const specs = specsInForce(record.spec, run.control);
  const intervals = await figuresWhere('interval', (step) =>
    specs.some((spec) => suiteDue(spec, step) === 'interval'),
  );
  const all = [...intervals, ...named.filter(({ result }) => result.suite_name === 'interval')];
  const endsAt = endOf(run, all);
  const finals = await figuresWhere(
    'final',
    (step) => suiteDue(record.spec, step) === 'final' || endsAt(step),
  );
  return [...named, ...intervals, ...finals].sort(
    (a, b) => a.step - b.step || a.result.suite_name.localeCompare(b.result.suite_name),
  );
}

/**
 * Evaluations that the run and its ancestors name in their records. For each step, the record of the timeline that took the step counts.
 */
async function readNamed(store: ObjectStore, run: string): Promise<EvaluationFigure[]> {
  const figures = new Map<string, EvaluationFigure>();
  for await (const { run: timeline, upTo } of timelinesOf(store, run)) {
    const records = await readRunEvaluations(store, timeline, (step) => step <= upTo);
    const found = await inParallel(records, async (record) => {
      const result = await readEvaluated(store, record);
      return result && { step: record.step, result };
    });
    for (const figure of found) {
      if (figure === null) continue;
      const place = `${figure.step}.${figure.result.suite_name}`;
      if (!figures.has(place)) figures.set(place, figure);
    }
  }
  return [...figures.values()];
}

/** Results written by versions that named no runs. Their suite shows which run they belong to. */
async function unnamedOf(store: ObjectStore, found: readonly Found[]): Promise<Found[]> {
  const unnamed = await inParallel(found, ({ result }) => isUnnamed(store, result));
  return found.filter((_, index) => unnamed[index]);
}

function heldStates(base: Digest, updates: readonly UpdateRecord[]): HeldState[] {
  const held: HeldState[] = [{ state: base, steps: [0] }];
  for (const { identity } of updates) {
    if (identity.applied === true) held.push({ state: identity.state, steps: [identity.step] });
    else held.at(-1)?.steps.push(identity.step);
  }
  return held;
}

async function readResults(store: ObjectStore, held: readonly HeldState[]): Promise<Found[]> {
  const listed = await inParallel(held, async ({ state, steps }) => {
    const suites = await store.listFolder(evaluationsOfState(state));
    return suites.map((name) => ({ steps, key: evaluationResultKey(state, name.replace(/\/$/, '')) }));
  });
  const found = await inParallel(listed.flat(), async ({ steps, key }) => {
    const result = await readRecord(store, key, 'evaluation');
    return result && { steps, result };
  });
  return found.filter((one) => one !== null);
}

/**
 * Whether the run ended at a step, for good or for a while, and so played `final` there. If a stop was requested for a step that was
 * already over, the run stopped at the step that it was taking then.
 */
function endOf(run: EvaluatedRun, intervals: readonly EvaluationFigure[]): (step: number) => boolean {
  const { spec } = run.record;
  const { updates, control } = run;
  const { total } = plannedSteps(spec);
  const last = updates.at(-1)?.identity.step ?? 0;
  const stops = stopsAsked(control);
  const { stopAfter } = foldControl(control);
  const spent = budgetIsSpent(run);
  return (step) =>
    step >= total ||
    stops.includes(step) ||
    (step === last && (spent || (stopAfter !== null && stopAfter <= step))) ||
    intervals.some((one) => one.step === step && reachesTarget(spec, step, one.result.pass_at_1));
}

/** Number of episodes that were played. */
export function episodesOf({ result }: EvaluationFigure): number {
  return result.graded + result.unknown;
}

/** Number of tasks that were played. */
export function tasksOf(figure: EvaluationFigure): number {
  return episodesOf(figure) / (figure.result.samples_per_task ?? 1);
}
