// Reads the history of a run from its records.
import { readEvaluations, type EvaluationFigure } from './evaluations.js';
import type { ControlRecord } from '../../spec/records/control-records.js';
import type { OwnerRecord, RunRecord } from '../../spec/records/run-records.js';
import type { BaseRecord, UpdateRecord } from '../../spec/records/update.js';
import { controlFolder, ownersFolder } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { readSequence } from '../../store/records/records.js';
import { lastCommittedStep, readBase, readRun, readUpdates } from '../../store/runs/run-records.js';
import { plannedSteps } from '../../spec/schedule.js';

export interface RunHistory {
  record: RunRecord;
  /** Step 0; null before it is committed. */
  base: BaseRecord | null;
  /** Steps 1…n in order. */
  updates: UpdateRecord[];
  /** Evaluations that the run asked for, by step, then by suite name. */
  evaluations: EvaluationFigure[];
  owners: OwnerRecord[];
  control: ControlRecord[];
}

export async function readHistory(store: ObjectStore, run: string): Promise<RunHistory> {
  const record = await readRun(store, run);
  const last = await lastCommittedStep(store, run);
  const updates = await readUpdates(store, run, 1, last);
  const [owners, control] = await Promise.all([
    readSequence(store, ownersFolder(run), 'owner'),
    readSequence(store, controlFolder(run), 'control'),
  ]);
  const evaluations = last < 0 ? [] : await readEvaluations(store, run);
  const base = last < 0 ? null : await readBase(store, run);
  return { record, base, updates, evaluations, owners, control };
}

interface Comparison {
  before: EvaluationFigure;
  after: EvaluationFigure;
  /** False if the two evaluations are of different suites. The smaller suite has the first tasks of the larger one. */
  sameTasks: boolean;
}

/** The evaluation of the state where GRPO begins or will begin. */
export function baselineOf({ record, updates, evaluations }: RunHistory): EvaluationFigure | null {
  const begin = firstGrpoStep(updates) ?? plannedSteps(record.spec).warmStart + 1;
  return evaluations.find((one) => one.step === begin - 1 && one.result.suite_name === 'final') ?? null;
}

/** The baseline, and the evaluation of the newest state after it: on the baseline's suite if that suite was played on that state. */
export function beforeAndAfter(history: RunHistory): Comparison | null {
  const before = baselineOf(history);
  const firstGrpo = firstGrpoStep(history.updates);
  if (!before || firstGrpo === null) return null;
  const later = history.evaluations.filter((figure) => figure.step >= firstGrpo);
  // After a stop and a restart, the baseline's suite may have been played last on an older state. That is not the run's present position.
  const newest = newestEvaluation(later);
  const after =
    later.find((one) => one.step === newest?.step && one.result.suite === before.result.suite) ?? newest;
  return after && { before, after, sameTasks: before.result.suite === after.result.suite };
}

function firstGrpoStep(updates: readonly UpdateRecord[]): number | null {
  return updates.find((update) => update.identity.kind === 'grpo')?.identity.step ?? null;
}

/** An evaluation of the newest state. If the state has several suites, takes the suite with the most episodes. */
export function newestEvaluation(evaluations: readonly EvaluationFigure[]): EvaluationFigure | null {
  const step = Math.max(...evaluations.map((figure) => figure.step));
  const newest = evaluations.filter((figure) => figure.step === step);
  return newest.sort((a, b) => b.result.graded - a.result.graded)[0] ?? null;
}
