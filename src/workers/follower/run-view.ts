// What followers read of a run: its own steps, in pages, and the evaluations of their states. The steps before a fork are left to the
// parent's followers.
import type { EvaluatedRecord, EvaluationResult } from '../../spec/records/evaluation-records.js';
import type { ControlRecord } from '../../spec/records/control-records.js';
import type { Digest } from '../../spec/records/parts.js';
import type { RunRecord } from '../../spec/records/run-records.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { runSuites } from '../../spec/schedule.js';
import { readControl } from '../../store/runs/control-records.js';
import { inParallel } from '../../base/in-parallel.js';
import { evaluationResultKey, updateKey } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { readIfWhole, readRecord } from '../../store/records/records.js';
import { readRunEvaluations } from '../../store/evaluations/run-evaluations.js';
import { readRun, readUpdate, readUpdateIfAny } from '../../store/runs/run-records.js';
import { isUnreadable } from '../../store/record-errors.js';

/** How many updates are read at once, and so held in memory at most. */
export const pageSteps = 32;

/** A run as one read sees it: the store without quarantined records, and the control records written so far. */
export interface RunView {
  store: ObjectStore;
  record: RunRecord;
  control: readonly ControlRecord[];
}

/** A state of the run, and the steps after which the run has it; there are several if a step was not applied. */
export interface HeldState {
  state: Digest;
  steps: number[];
}

export interface StepEvaluation {
  step: number;
  result: EvaluationResult;
}

/** Throws `UnreadableRecord` if the run does not exist. */
export async function openView(store: ObjectStore, run: string): Promise<RunView> {
  const record = await readRun(store, run);
  return { store: await openRunView(store, run), record, control: await readControl(store, run) };
}

/** The step after which the run's own steps begin: 0 or the fork's step. */
export function beginningOf({ lineage }: RunRecord): number {
  return lineage?.step ?? 0;
}

/** The next page of committed updates after `position`. If there are none, this costs one request. */
export async function updatesBehind({ store, record }: RunView, position: number): Promise<UpdateRecord[]> {
  const next = await readUpdateIfAny(store, record.run, position + 1);
  if (!next) return [];
  const rest = await inParallel(stepsFrom(position + 2, position + pageSteps), (step) =>
    readUpdateIfAny(store, record.run, step),
  );
  const end = rest.indexOf(null);
  return [next, ...rest.slice(0, end < 0 ? rest.length : end).filter((update) => update !== null)];
}

/** Null before the base model is recorded. */
export async function stateAfter({ store, record }: RunView, step: number): Promise<HeldState | null> {
  const steps = [step];
  for (let one = step; one > beginningOf(record); one--) {
    const { identity } = await readUpdate(store, record.run, one);
    if (identity.applied === true) return { state: identity.state, steps };
    steps.unshift(one - 1);
  }
  if (record.lineage) return { state: record.lineage.state, steps };
  const base = await readRecord(store, updateKey(record.run, 0), 'base');
  return base && { state: base.identity.state, steps };
}

export function heldAfter(before: HeldState, { identity }: UpdateRecord): HeldState {
  const { step, state, applied } = identity;
  return applied === true ? { state, steps: [step] } : { state, steps: [...before.steps, step] };
}

/**
 * The state's new evaluations that the run names as its own, in the order in which the run plays them. If all suites are known, no result is
 * read. An unreadable result is skipped: once it is quarantined, another result can take its place.
 */
export async function evaluationsOf(
  view: RunView,
  held: HeldState,
  isKnown: (steps: readonly number[], suite: Digest) => boolean,
): Promise<StepEvaluation[]> {
  // A delivered evaluation keeps its step, even if a later step of the state names it again.
  const firsts = new Map<Digest, EvaluatedRecord>();
  for (const one of await namedAt(view, held.steps))
    if (!firsts.has(one.suite) && !isKnown(held.steps, one.suite)) firsts.set(one.suite, one);
  const found = await inParallel([...firsts.values()].sort(bySuite), async ({ step, suite }) => {
    const result = await readIfWhole(view.store, evaluationResultKey(held.state, suite), 'evaluation');
    return result && { step, result };
  });
  return found.filter((one) => one !== null);
}

/** Sorts evaluations in the order in which a run plays them. */
function bySuite(a: EvaluatedRecord, b: EvaluatedRecord): number {
  const rank = ({ suite_name }: EvaluatedRecord): number =>
    runSuites.findIndex((name) => name === suite_name);
  return rank(a) - rank(b) || (a.suite < b.suite ? -1 : 1);
}

/** The evaluations that the run's records name at these steps. An unreadable record is skipped, like an unreadable result. */
async function namedAt({ store, record }: RunView, steps: readonly number[]): Promise<EvaluatedRecord[]> {
  try {
    return await readRunEvaluations(store, record.run, (step) => steps.includes(step));
  } catch (error) {
    if (isUnreadable(error)) return [];
    throw error;
  }
}

function stepsFrom(first: number, last: number): number[] {
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
}
